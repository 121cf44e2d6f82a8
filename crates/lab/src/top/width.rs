//! Text cut and padded to columns of a terminal.

use ratatui::text::Line;

/// Returns the number of columns that a text takes.
pub(super) fn of(text: &str) -> usize {
    Line::raw(text).width()
}

/// Cuts a text to at most `most` columns, with a mark at the cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if of(text) <= most {
        return text.to_owned();
    }
    let mut cut = String::new();
    for letter in text.chars() {
        cut.push(letter);
        if of(&cut) >= most {
            cut.pop();
            break;
        }
    }
    if most > 0 {
        cut.push('~');
    }
    cut
}

/// Pads or cuts a text to `columns` columns, aligned left.
pub(super) fn left(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let pad = columns.saturating_sub(of(&text));
    text + &" ".repeat(pad)
}

/// Pads or cuts a text to `columns` columns, aligned right.
pub(super) fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    " ".repeat(columns.saturating_sub(of(&text))) + &text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_padded_to_columns() {
        assert_eq!((left("ab", 4), right("ab", 4)), ("ab  ".to_owned(), "  ab".to_owned()));
        assert_eq!(
            (cut("abcdef", 4), cut("abcd", 4), cut("ab", 0)),
            ("abc~".into(), "abcd".into(), String::new())
        );
        assert_eq!((of(&left("日本語の名前", 6)), of(&right("日本語", 4))), (6, 4));
    }
}
