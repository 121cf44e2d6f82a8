//! A sheet: what a record says, as one page of tables and pictures for a browser.
//!
//! Unit: what is in cells is text, with a number behind it where it has one, by which its column is sorted. Problem: studies, profiles and tunings are
//! looked at rather than read, sent to colleagues and kept, and names in them come from whoever wrote the programs. Idea: each is turned into the same small
//! value, and one renderer makes markup of it, in which every word is escaped.
//!
//! Properties: the page is whole without its script, which only sorts and changes colours; it asks nothing of any network, and says so to the browser;
//! equal sheets give equal pages.

use super::strip::{self, Strip};
use std::fmt::Write as _;

const HTML: &str = include_str!("sheet.html");
const STYLE: &str = include_str!("page.css");
const MORE_STYLE: &str = include_str!("sheet.css");
const SCRIPT: &str = include_str!("sheet.js");

/// A page.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sheet {
    /// What it is of.
    pub title: String,
    /// One sentence below it.
    pub about: String,
    /// What was the same for all of it, each with its name.
    pub facts: Vec<(String, String)>,
    /// What one should know before believing it.
    pub warnings: Vec<String>,
    pub sections: Vec<Section>,
}

/// A part of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Section {
    pub title: String,
    /// What is to be seen there, in a sentence or two.
    pub words: String,
    pub table: Option<Table>,
    pub strip: Option<Strip>,
    /// Lines, as they were printed.
    pub lines: Vec<String>,
}

/// Rows and columns; columns are sorted by a click.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// What is in a cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Cell {
    pub text: String,
    /// By which its column is sorted; those without come last.
    pub number: Option<f64>,
    pub mood: Mood,
}

/// How a cell looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Mood {
    #[default]
    Plain,
    Good,
    Bad,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Cell {
    /// A number, and how it is written.
    pub(super) fn number(number: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), number: Some(number), mood: Mood::Plain }
    }

    /// The same cell in another look.
    pub(super) fn looks(self, mood: Mood) -> Self {
        Self { mood, ..self }
    }
}

/// Text as it stands in markup, in words and in attributes. Characters that change the direction or are no characters are shown as such.
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

impl Sheet {
    /// As a file for a browser.
    pub(super) fn page(&self) -> String {
        let mut facts = String::new();
        for (name, value) in &self.facts {
            let _ = write!(facts, "<div><dt>{}</dt><dd>{}</dd></div>", plain(name), plain(value));
        }
        let warnings: String =
            self.warnings.iter().map(|words| format!("<p class=\"warn\">{}</p>\n", plain(words))).collect();
        let sections: String =
            self.sections.iter().enumerate().map(|(number, section)| section.markup(number + 1)).collect();
        // What is put in last cannot be taken for a place to put something.
        HTML.replace("{{style}}", &format!("{STYLE}{MORE_STYLE}"))
            .replace("{{script}}", SCRIPT)
            .replace("{{sections}}", &braces(&sections))
            .replace("{{warnings}}", &braces(&warnings))
            .replace("{{facts}}", &braces(&facts))
            .replace("{{about}}", &braces(&plain(&self.about)))
            .replace("{{title}}", &braces(&plain(&self.title)))
    }
}

/// Text in which nothing stands for something else.
fn braces(markup: &str) -> String {
    markup.replace("{{", "&#123;&#123;")
}

impl Section {
    fn markup(&self, number: usize) -> String {
        let mut out = format!(
            "<section id=\"s{number}\" aria-labelledby=\"h{number}\">\n<h2 id=\"h{number}\">{}</h2>\n",
            plain(&self.title)
        );
        if !self.words.is_empty() {
            let _ = writeln!(out, "<p class=\"dim\">{}</p>", plain(&self.words));
        }
        if let Some(strip) = &self.strip {
            out.push_str(&strip::svg(strip, &self.title));
        }
        if let Some(table) = &self.table {
            out.push_str(&table.markup(&format!("h{number}")));
        }
        if !self.lines.is_empty() {
            let lines: Vec<String> = self.lines.iter().map(|line| plain(line)).collect();
            let _ = writeln!(out, "<pre>{}</pre>", lines.join("\n"));
        }
        out.push_str("</section>\n");
        out
    }
}

impl Table {
    /// Whether a column is of numbers: those stand on the right.
    fn is_of_numbers(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).any(|cell| cell.number.is_some())
    }

    fn markup(&self, named_by: &str) -> String {
        let mut out = format!(
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"sheet\" aria-labelledby=\"{named_by}\"><thead><tr>"
        );
        for (at, name) in self.columns.iter().enumerate() {
            let style = if self.is_of_numbers(at) { " class=\"n\"" } else { "" };
            let _ =
                write!(out, "<th scope=\"col\"{style}><button type=\"button\">{}</button></th>", plain(name));
        }
        out.push_str("</tr></thead><tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let mut style = if self.is_of_numbers(at) { "n" } else { "" }.to_owned();
                style.push_str(match cell.mood {
                    Mood::Plain => "",
                    Mood::Good => " good",
                    Mood::Bad => " bad",
                });
                let number =
                    cell.number.map_or_else(String::new, |number| format!(" data-value=\"{number}\""));
                let style = if style.is_empty() { style } else { format!(" class=\"{}\"", style.trim()) };
                let _ = write!(out, "<td{style}{number}>{}</td>", plain(&cell.text));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</td></pre><script>alert(1)</script>\"' onclick=x {{title}}\u{202e}";

    #[test]
    fn no_word_becomes_markup_wherever_it_stands() {
        let table = Table { columns: vec![HOSTILE.to_owned()], rows: vec![vec![HOSTILE.into()]] };
        let strip = Strip {
            of: HOSTILE.to_owned(),
            rows: vec![strip::Row::of(HOSTILE, vec![1.0])],
            ..Strip::default()
        };
        let section = Section {
            title: HOSTILE.to_owned(),
            words: HOSTILE.to_owned(),
            table: Some(table),
            strip: Some(strip),
            lines: vec![HOSTILE.to_owned()],
        };
        let said = || HOSTILE.to_owned();
        let sheet = Sheet {
            title: said(),
            about: said(),
            facts: vec![(said(), said())],
            warnings: vec![said()],
            sections: vec![section],
        };
        let page = sheet.page();
        let bare = Sheet::default().page();
        assert_eq!(page.matches("<script").count(), bare.matches("<script").count());
        assert!(
            !page.contains("{{")
                && !page.contains('\u{202e}')
                && !page.contains("onclick=x\"")
                && !page.contains("' onclick")
        );
        assert!(page.matches("&lt;script&gt;alert(1)").count() >= 9);
    }

    #[test]
    fn columns_of_numbers_say_what_they_are_sorted_by() {
        let rows = vec![
            vec!["cg".into(), Cell::number(1.5, ">1.5").looks(Mood::Bad)],
            vec!["ep".into(), "-".into()],
        ];
        let table = Table { columns: vec!["PROGRAM".to_owned(), "SLOW-DOWN".to_owned()], rows };
        let text = table.markup("h1");
        assert!(text.contains("<td class=\"n bad\" data-value=\"1.5\">&gt;1.5</td>"), "{text}");
        assert!(
            text.contains("<th scope=\"col\" class=\"n\"><button type=\"button\">SLOW-DOWN</button></th>"),
            "{text}"
        );
        assert!(text.contains("<td>cg</td>") && text.contains("<td class=\"n\">-</td>"), "{text}");
    }
}
