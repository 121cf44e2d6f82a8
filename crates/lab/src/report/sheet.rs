//! Record as one HTML page of tables and pictures.
//!
//! Unit: a cell is text, with a number if it has one, by which its column is sorted. Problem:
//! studies, profiles and tunings are viewed, sent to colleagues and stored, and names in them come
//! from the authors of the programs. Idea: each record becomes the same small value, and one
//! renderer makes markup of it, in which every word is escaped.
//!
//! Properties: the page is complete without its script, which only sorts and changes colours. It
//! loads nothing from a network and forbids the browser to. Equal sheets give equal pages.

use super::markup::plain;
use super::strip_plot::{self, Strip};
use std::fmt::Write as _;

const HTML: &str = include_str!("sheet.html");
const STYLE: &str = include_str!("page.css");
const MORE_STYLE: &str = include_str!("sheet.css");
const SCRIPT: &str = include_str!("sheet.js");

/// A page.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sheet {
    /// Its title.
    pub title: String,
    /// One sentence below the title.
    pub about: String,
    /// Values that were the same for the whole record, each with its name.
    pub facts: Vec<(String, String)>,
    /// Warnings about the reliability of the record.
    pub warnings: Vec<String>,
    pub sections: Vec<Section>,
}

/// A section of the page.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Section {
    pub title: String,
    /// Description of the section, one or two sentences.
    pub words: String,
    pub table: Option<Table>,
    pub strip: Option<Strip>,
    /// Lines, as they were printed.
    pub lines: Vec<String>,
}

/// Rows and columns; a click sorts by a column.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<SheetCell>>,
}

/// A cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct SheetCell {
    pub text: String,
    /// The key by which its column is sorted; cells without one come last.
    pub number: Option<f64>,
    pub mood: CellColour,
}

/// Colour of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum CellColour {
    #[default]
    Plain,
    Good,
    Bad,
}

impl From<&str> for SheetCell {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

impl From<String> for SheetCell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl SheetCell {
    /// A number, and its text.
    pub(super) fn number(number: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), number: Some(number), mood: CellColour::Plain }
    }

    /// The same cell in another colour.
    pub(super) fn looks(self, mood: CellColour) -> Self {
        Self { mood, ..self }
    }
}

impl Sheet {
    /// Formats the page as an HTML file.
    pub(super) fn page(&self) -> String {
        let mut facts = String::new();
        for (name, value) in &self.facts {
            let _ = write!(facts, "<div><dt>{}</dt><dd>{}</dd></div>", plain(name), plain(value));
        }
        let warnings: String =
            self.warnings.iter().map(|words| format!("<p class=\"warn\">{}</p>\n", plain(words))).collect();
        let sections: String =
            self.sections.iter().enumerate().map(|(number, section)| section.markup(number + 1)).collect();
        // The content is inserted last, so that no placeholder in it can be replaced.
        HTML.replace("{{style}}", &format!("{STYLE}{MORE_STYLE}"))
            .replace("{{script}}", SCRIPT)
            .replace("{{sections}}", &braces(&sections))
            .replace("{{warnings}}", &braces(&warnings))
            .replace("{{facts}}", &braces(&facts))
            .replace("{{about}}", &braces(&options_whole(&self.about)))
            .replace("{{title}}", &braces(&plain(&self.title)))
    }
}

/// Escapes a sentence as [`plain`] does. Options in it are not broken at their hyphens on a narrow
/// page.
fn options_whole(sentence: &str) -> String {
    let word = |word: &str| {
        let plain = plain(word);
        if word.starts_with("--") { format!("<span class=\"whole\">{plain}</span>") } else { plain }
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Escapes braces, so that text cannot contain a placeholder.
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
            out.push_str(&strip_plot::markup(strip, &self.title));
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
    /// Returns whether a column holds numbers: those are aligned right.
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
                    CellColour::Plain => "",
                    CellColour::Good => " good",
                    CellColour::Bad => " bad",
                });
                let number =
                    cell.number.map_or_else(String::new, |number| format!(" data-value=\"{number}\""));
                let style = if style.is_empty() { style } else { format!(" class=\"{}\"", style.trim()) };
                // Where the page is narrow, each cell shows the name of its column.
                let column = self.columns.get(at).map_or("", String::as_str);
                let _ = write!(
                    out,
                    "<td{style} data-column=\"{}\"{number}>{}</td>",
                    plain(column),
                    plain(&cell.text)
                );
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
    fn options_in_a_sentence_stay_whole_and_escaped() {
        assert_eq!(
            options_whole("as options: run --cores=1 --x=<b>"),
            "as options: run <span class=\"whole\">--cores=1</span> <span class=\"whole\">--x=&lt;b&gt;</span>"
        );
    }

    #[test]
    fn no_text_of_a_cell_becomes_markup() {
        let table = Table { columns: vec![HOSTILE.to_owned()], rows: vec![vec![HOSTILE.into()]] };
        let strip = Strip {
            of: HOSTILE.to_owned(),
            rows: vec![strip_plot::StripRow::of(HOSTILE, vec![1.0])],
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
        assert!(page.matches("&lt;script&gt;alert(1)").count() >= 10);
    }

    #[test]
    fn columns_of_numbers_say_what_they_are_sorted_by() {
        let rows = vec![
            vec!["cg".into(), SheetCell::number(1.5, ">1.5").looks(CellColour::Bad)],
            vec!["ep".into(), "-".into()],
        ];
        let table = Table { columns: vec!["PROGRAM".to_owned(), "SLOW-DOWN".to_owned()], rows };
        let text = table.markup("h1");
        assert!(
            text.contains("<td class=\"n bad\" data-column=\"SLOW-DOWN\" data-value=\"1.5\">&gt;1.5</td>"),
            "{text}"
        );
        assert!(
            text.contains("<th scope=\"col\" class=\"n\"><button type=\"button\">SLOW-DOWN</button></th>"),
            "{text}"
        );
        assert!(text.contains("<td data-column=\"PROGRAM\">cg</td>"), "{text}");
        assert!(text.contains("<td class=\"n\" data-column=\"SLOW-DOWN\">-</td>"), "{text}");
    }
}
