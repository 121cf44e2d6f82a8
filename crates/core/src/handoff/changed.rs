//! Names of the variables that a launch changed for the program, as one line of text.
//!
//! The shim reports them if the program fails within seconds: `4711 OMP_PLACES OMP_PROC_BIND`,
//! where `4711` is the process that the launcher becomes. Children inherit the variable and report
//! nothing.

/// Environment variable that carries the text.
pub const CHANGED_VARIABLE: &str = "TRIMTAB_CHANGED";

/// Returns the text for a process and the variables changed for it; `None` if no variable was
/// changed.
pub fn changed_text<'a>(pid: u32, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| format!("{pid} {}", names.join(" ")))
}

/// Returns the process and the names in a text; `None` for a text of another form.
pub fn read_changed(text: &str) -> Option<(u32, &str)> {
    let (pid, names) = text.split_once(' ')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b' ';
    (!names.is_empty() && names.bytes().all(plain)).then_some((pid.parse().ok()?, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_is_read_back() {
        let text = changed_text(7, ["OMP_PLACES", "OMP_PROC_BIND"].into_iter()).unwrap();
        assert_eq!(read_changed(&text), Some((7, "OMP_PLACES OMP_PROC_BIND")));
        assert_eq!(changed_text(7, [].into_iter()), None);
        for bad in ["", "7", "7 ", "x A", "7 A\n", "7 \u{1b}[2J", "-1 A"] {
            assert_eq!(read_changed(bad), None, "{bad:?}");
        }
    }
}
