//! Text as markup.

/// Escapes text for markup, in content and in attributes. Characters that change the writing
/// direction, and control characters, become U+FFFD.
pub(super) fn plain(words: &str) -> String {
    let mut plain = String::with_capacity(words.len());
    for letter in words.chars() {
        match letter {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            '\'' => plain.push_str("&#39;"),
            '\n' | '\t' => plain.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                plain.push('\u{fffd}')
            }
            letter if letter.is_control() => plain.push('\u{fffd}'),
            letter => plain.push(letter),
        }
    }
    plain
}
