//! Tests of the view: events in, pictures out.

use super::draw::draw;
use super::event::{Action, Event};
use super::replay::Player;
use super::scene::{Around, Scene};
use super::state::State;
use super::text;
use super::threads::{Sort, TableRow};
use crate::runs::Run;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use std::sync::Arc;
use trimtab_core::ids::ThreadId;
use trimtab_core::place::Taken;
use trimtab_core::telemetry::account::{Account, Keep, Playback};
use trimtab_core::time::Span;
use trimtab_core::trace::Trace;
use trimtab_hold::budget_report::{BudgetProcess, BudgetReport, LiveBudget};
use trimtab_hold::holds::HoldRow;

fn trace(run: &Run) -> Trace {
    Trace::parse(&run.text()).unwrap()
}

fn account(run: &Run) -> Account {
    let trace = trace(run);
    let mut playback = Playback::new(&trace.header, Keep::default());
    for record in &trace.steps {
        playback.step(record, &mut |_, _| ());
    }
    playback.account().clone()
}

fn around(run: &Run) -> Around {
    let cpus = trace(run).header.usable;
    let taken = Taken { held: "0-3".parse().unwrap(), pinned: "6".parse().unwrap(), ..Taken::nothing(cpus) };
    Around { taken, ..Around::default() }
}

/// Returns a live view of a run.
fn live(run: &Run) -> State {
    let mut state = State::live(trace(run).header.machine, Span::from_ms(1_000), true);
    state.update(Event::Around(Box::new(around(run))));
    state.update(Event::Scene(Box::new(Scene { account: Arc::new(account(run)) })));
    state
}

fn replay(run: &Run) -> State {
    State::replay(Player::new(trace(run)), true)
}

fn picture(state: &State, wide: u16, high: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(wide, high)).unwrap();
    terminal.draw(|frame| draw(state, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..wide).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..high).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn press(state: &mut State, keys: &str) -> Action {
    let key = |letter| Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
    keys.chars().map(|letter| state.update(key(letter))).last().unwrap()
}

fn code(state: &mut State, code: KeyCode) -> Action {
    state.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

#[test]
fn a_screen_of_80_columns() {
    insta::assert_snapshot!(picture(&live(&Run::default()), 80, 30));
}

#[test]
fn a_screen_of_40_columns() {
    insta::assert_snapshot!(picture(&live(&Run::default()), 40, 24));
}

#[test]
fn a_screen_of_160_columns_with_a_chosen_thread() {
    let mut state = live(&Run::default());
    press(&mut state, "jj");
    insta::assert_snapshot!(picture(&state, 160, 34));
}

#[test]
fn a_replay_in_the_middle() {
    let mut state = replay(&Run { end: false, ..Run::default() });
    press(&mut state, "5");
    insta::assert_snapshot!(picture(&state, 80, 24));
}

#[test]
fn help() {
    let mut state = live(&Run::default());
    press(&mut state, "?");
    insta::assert_snapshot!(picture(&state, 80, 30));
    let short = picture(&state, 34, 9);
    assert!(short.ends_with("... enlarge the window\n"), "{short}");
    assert_eq!(code(&mut state, KeyCode::Esc), Action::Draw, "Escape closes help, not the view");
    assert!(!state.help);
}

#[test]
fn one_sample_as_text() {
    let run = Run::default();
    insta::assert_snapshot!(text::frame(
        &trace(&run).header.machine,
        &account(&run),
        &around(&run),
        80,
        "nobody"
    ));
}

#[test]
fn the_budget_of_a_run_is_a_line_after_its_hold() {
    let sums = BudgetReport { cores: 4, programs: 2, teams: 9, bounded: 3, refused: 5, lent: 0 };
    let processes = vec![BudgetProcess { pid: 12, computing: 3, wants: 8 }];
    let row = HoldRow {
        cpus: "0-3".parse().unwrap(),
        level: 0,
        mode: "exclusive",
        user: "ann".to_owned(),
        uid: 1,
        pid: 7,
        standing: "running",
        age_s: 1,
        load_permille: None,
        command: "app".to_owned(),
        hold: "0x1".to_owned(),
        delegated: false,
        memory: Vec::new(),
        budget: Some(LiveBudget { sums, computing: 3, processes }),
    };
    let run = Run::default();
    let around = Around { holds: vec![row.clone(), HoldRow { pid: 8, budget: None, ..row }], ..around(&run) };
    let frame = text::frame(&trace(&run).header.machine, &account(&run), &around, 80, "nobody");
    let mut state = live(&run);
    state.update(Event::Around(Box::new(around)));
    for text in [frame, picture(&state, 130, 34)] {
        let held = |line: &str| line.starts_with("held 0-3 ");
        let lines: Vec<&str> =
            text.lines().filter(|line| held(line) || line.starts_with("budget ")).collect();
        assert!(lines.len() == 3 && held(lines[0]) && held(lines[2]), "{text}");
        assert_eq!(
            lines[1],
            "budget of pid 7: 3 of 4 threads compute (pid 12: 3); 9 teams in 2 programs; 3 smaller than asked for (5 threads refused)"
        );
    }
}

#[test]
fn no_size_and_no_state_is_too_much() {
    let hostile =
        Run { suffix: "\u{1b}[2J\u{202e}\u{0}日本語のスレッド名".to_owned(), ..Run::default() };
    let many = Run { machine: "pack:8 numa:2 l3:4 core:16 pu:2", threads: 300, steps: 5, ..Run::default() };
    let nothing = Run { steps: 0, threads: 0, ..Run::default() };
    for run in [Run::default(), hostile, many, nothing] {
        for mut state in [live(&run), replay(&run), State::live(trace(&run).header.machine, Span(1), false)] {
            for wide in [1, 2, 5, 9, 20, 39, 40, 41, 80, 133, 200] {
                for high in [1, 2, 3, 4, 7, 8, 13, 20, 60] {
                    let drawn = picture(&state, wide, high);
                    assert!(!drawn.contains(['\u{1b}', '\u{202e}', '\u{0}']), "{drawn:?}");
                }
            }
            for keys in ["?", "x", "s", "r", "m", "j", "G", "k", "g", "/ab", "\u{1b}"] {
                press(&mut state, keys);
                picture(&state, 33, 11);
            }
            for key in
                [KeyCode::Enter, KeyCode::Esc, KeyCode::PageDown, KeyCode::Up, KeyCode::End, KeyCode::Tab]
            {
                code(&mut state, key);
                picture(&state, 80, 25);
            }
        }
    }
}

#[test]
fn no_colour_means_none() {
    let run = Run::default();
    let mut state = live(&run);
    for (colour, expected) in [(true, true), (false, false)] {
        state.colour = colour;
        press(&mut state, "j?");
        let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
        terminal.draw(|frame| draw(&state, frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        let any = cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        assert_eq!(any, expected);
        press(&mut state, "?");
    }
}

#[test]
fn sorting_cycles_through_all_orders_and_reverses() {
    let mut state = live(&Run::default());
    let by_speed = state.rows();
    assert_eq!(state.sort, Sort::Speed);
    let speed = |row: &TableRow| match row {
        TableRow::Thread(id) => state.account().unwrap().thread(*id).unwrap().speed,
        TableRow::Program(_) => None,
    };
    let speeds: Vec<f64> = by_speed.iter().filter_map(speed).collect();
    assert!(speeds.is_sorted() && speeds.len() > 5, "{speeds:?}");
    let sleeper = by_speed.last().unwrap();
    assert_eq!(*sleeper, TableRow::Thread(ThreadId(0)), "what has no speed comes last");
    press(&mut state, "sssss");
    assert_eq!(state.sort, Sort::Tid);
    let TableRow::Thread(first) = state.rows()[1] else { panic!() };
    assert_eq!(first, ThreadId(0));
    press(&mut state, "r");
    let TableRow::Thread(first) = state.rows()[1] else { panic!() };
    assert_eq!(first, ThreadId(11));
    press(&mut state, "ss");
    assert_eq!(state.sort, Sort::Speed);
}

#[test]
fn the_filter_keeps_matching_rows_and_escape_clears_it_before_it_quits() {
    let mut state = live(&Run::default());
    let all = state.rows().len();
    press(&mut state, "/worker-1");
    assert!(state.typing);
    assert_eq!(state.rows().len(), 1 + 3, "1, 10, 11 and their program");
    assert_eq!(press(&mut state, "q"), Action::Draw, "q is a letter of the filter");
    assert_eq!(state.rows().len(), 0);
    code(&mut state, KeyCode::Backspace);
    code(&mut state, KeyCode::Enter);
    assert_eq!(code(&mut state, KeyCode::Esc), Action::Draw);
    assert_eq!(state.rows().len(), all);
    assert_eq!(code(&mut state, KeyCode::Esc), Action::Quit(None));
}

#[test]
fn a_pause_keeps_the_rows_and_its_end_shows_the_newest() {
    let run = Run::default();
    let mut state = live(&run);
    let steps = |state: &State| state.account().unwrap().steps();
    press(&mut state, " ");
    let short = Run { steps: 30, ..Run::default() };
    let scene = || Event::Scene(Box::new(Scene { account: Arc::new(account(&short)) }));
    assert_eq!((state.update(scene()), steps(&state)), (Action::None, 120));
    press(&mut state, " ");
    assert_eq!(steps(&state), 30);
}

#[test]
fn the_cursor_stays_with_its_thread_and_folding_hides_threads() {
    let mut state = live(&Run::default());
    press(&mut state, "jjj");
    let chosen = state.chosen;
    assert!(matches!(chosen, Some(TableRow::Thread(_))));
    press(&mut state, "s");
    assert_eq!(state.chosen, chosen);
    code(&mut state, KeyCode::Enter);
    assert_eq!(state.rows().len(), 1);
    assert!(matches!(state.chosen, Some(TableRow::Program(_))));
    code(&mut state, KeyCode::Enter);
    assert_eq!(state.rows().len(), 12);
}

#[test]
fn a_replay_steps_seeks_and_returns_to_the_same_numbers() {
    let run = Run { steps: 300, ..Run::default() };
    let mut state = replay(&run);
    let figures = |state: &State| {
        let player = state.player.as_ref().unwrap();
        (player.position(), format!("{:?}", player.account().programs().collect::<Vec<_>>()))
    };
    press(&mut state, "4");
    let there = figures(&state);
    assert_eq!(there.0, (120, 300));
    code(&mut state, KeyCode::Right);
    assert_ne!(figures(&state), there);
    for keys in ["9", "0", "]]]", "[[[["] {
        press(&mut state, keys);
    }
    press(&mut state, "4");
    assert_eq!(figures(&state), there);
    code(&mut state, KeyCode::Right);
    code(&mut state, KeyCode::Left);
    assert_eq!(figures(&state), there);
}

#[test]
fn a_replay_plays_with_time_and_stops_at_its_end() {
    let mut state = replay(&Run { steps: 21, ..Run::default() });
    let at = |state: &State| state.player.as_ref().unwrap().position().0;
    assert_eq!((state.update(Event::Tick(Span::from_ms(1_000))), at(&state)), (Action::None, 1));
    press(&mut state, " ");
    assert_eq!((state.update(Event::Tick(Span::from_ms(350))), at(&state)), (Action::Draw, 4));
    state.update(Event::Tick(Span::from_ms(50)));
    assert_eq!(at(&state), 5, "what was left of a step is not lost");
    press(&mut state, ">");
    state.update(Event::Tick(Span::from_ms(100)));
    assert_eq!(at(&state), 7);
    state.update(Event::Tick(Span::from_ms(100_000)));
    assert_eq!((at(&state), state.player.as_ref().unwrap().pace().0), (21, false));
    press(&mut state, " ");
    assert_eq!(at(&state), 1, "at the end it plays from the beginning");
}

#[test]
fn signals_end_the_view_with_their_status() {
    let mut state = live(&Run::default());
    assert_eq!(state.update(Event::Stop(15)), Action::Quit(Some(15)));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    press(&mut state, "/");
    assert_eq!(state.update(Event::Key(control_c)), Action::Quit(None));
}

#[test]
fn a_step_without_threads_is_described() {
    // A simulated run begins like this: its programs have not started at the first sample.
    let run = Run { threads: 0, ..Run::default() };
    let drawn = picture(&replay(&run), 100, 24);
    assert!(drawn.contains("no thread at this step of the trace"), "{drawn}");
    assert!(!drawn.contains("no program is watched"), "{drawn}");
    assert!(picture(&live(&run), 100, 24).contains("no program is watched"));
}
