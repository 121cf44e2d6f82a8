use super::*;

#[test]
fn every_measured_cell_can_be_run() {
    for set in SETS {
        let cells = set.cells().unwrap_or_else(|error| panic!("{error}"));
        assert!(cells.len() > 25, "{}: {}", set.name, cells.len());
        for cell in &cells {
            assert!(cell.low <= cell.measured && cell.measured <= cell.high && cell.low > 0.0, "{cell:?}");
            assert!(set.scenario(cell, 1).is_ok(), "{}", cell.name);
        }
    }
}

#[test]
fn wrong_lines_are_reported() {
    assert!(find("bench-2.4").unwrap_err().to_string().contains("bench-6.18"));
    for (line, what) in [
        ("a,b", "2 values"),
        ("a,3,1,0,doze,none,0,kernel,1,1,1,1", "\"doze\" is not a way to wait"),
        ("a,3,1,0,spin,dog,0,kernel,1,1,1,1", "\"dog\" is not a competitor"),
        ("a,3,1,0,spin,none,0,luck,1,1,1,1", "\"luck\" is not a way to run"),
        ("a,x,1,0,spin,none,0,kernel,1,1,1,1", "\"x\" is not a number of this kind"),
    ] {
        let error = MeasuredCell::read(line).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}
