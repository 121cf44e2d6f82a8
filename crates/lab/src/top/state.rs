//! State of the view, and its change by events. No clock, no terminal: equal events give equal
//! states.

use super::event::{Action, Event};
use super::replay::Player;
use super::scene::{Around, Scene};
use super::threads::{Sort, TableRow, rows};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::collections::BTreeSet;
use trimtab_core::ids::ProgramId;
use trimtab_core::telemetry::account::Account;
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;

/// Rows that a page key moves.
const PAGE_ROWS: isize = 10;

/// The view.
#[derive(Debug)]
pub(super) struct State {
    pub(super) machine: Machine,
    /// The content shown, of a live machine.
    scene: Option<Scene>,
    /// The latest content that arrived while the view was paused.
    waiting: Option<Scene>,
    pub(super) around: Around,
    /// The recorded run, if one is shown.
    pub(super) player: Option<Player>,
    pub(super) interval: Span,
    pub(super) paused: bool,
    pub(super) sort: Sort,
    /// Whether the order is reversed.
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) typing: bool,
    /// Programs of which only the first line is shown.
    pub(super) folded: BTreeSet<ProgramId>,
    /// The row with the cursor.
    pub(super) chosen: Option<TableRow>,
    pub(super) help: bool,
    pub(super) map: bool,
    /// Whether colours may be used.
    pub(super) colour: bool,
    /// Why no more samples come.
    pub(super) over: Option<String>,
}

impl State {
    /// Starts the view of a live machine.
    pub(super) fn live(machine: Machine, interval: Span, colour: bool) -> Self {
        Self {
            machine,
            scene: None,
            waiting: None,
            around: Around::default(),
            player: None,
            interval,
            paused: false,
            sort: Sort::default(),
            reverse: false,
            filter: String::new(),
            typing: false,
            folded: BTreeSet::new(),
            chosen: None,
            help: false,
            map: true,
            colour,
            over: None,
        }
    }

    /// Starts the view of a recorded run.
    pub(super) fn replay(player: Player, colour: bool) -> Self {
        let interval = player.interval();
        let machine = player.machine().clone();
        Self { player: Some(player), ..Self::live(machine, interval, colour) }
    }

    /// Returns the totals that are shown now.
    pub(super) fn account(&self) -> Option<&Account> {
        match &self.player {
            Some(player) => Some(player.account()),
            None => self.scene.as_ref().map(|scene| &*scene.account),
        }
    }

    /// Returns the rows that are shown now.
    pub(super) fn rows(&self) -> Vec<TableRow> {
        let order = (self.sort, self.reverse);
        self.account().map(|account| rows(account, order, &self.filter, &self.folded)).unwrap_or_default()
    }

    /// Takes an event in.
    pub(super) fn update(&mut self, event: Event) -> Action {
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => Action::None,
            Event::Key(key) if self.typing => self.type_key(key),
            Event::Key(key) => self.key(key),
            Event::Redraw => Action::Draw,
            Event::Scene(scene) if self.paused => {
                self.waiting = Some(*scene);
                Action::None
            }
            Event::Scene(scene) => {
                self.scene = Some(*scene);
                Action::Draw
            }
            Event::Around(around) => {
                self.around = *around;
                if self.paused { Action::None } else { Action::Draw }
            }
            Event::Tick(span) => {
                let moved = self.player.as_mut().is_some_and(|player| player.advance(span));
                if moved { Action::Draw } else { Action::None }
            }
            Event::Over(why) | Event::Failed(why) => {
                self.over = Some(why);
                Action::Draw
            }
            Event::Stop(signal) => Action::Quit(Some(signal)),
        }
    }

    fn type_key(&mut self, key: KeyEvent) -> Action {
        match key.code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Action::Quit(None),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => self.filter.clear(),
            KeyCode::Char(letter) if !letter.is_control() => self.filter.push(letter),
            _ => return Action::None,
        }
        Action::Draw
    }

    fn key(&mut self, key: KeyEvent) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Action::Quit(None),
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit(None),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = !self.help,
            _ if self.help => self.help = false,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('m') => self.map = !self.map,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('l') if control => {}
            KeyCode::Enter => self.fold(),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-PAGE_ROWS),
            KeyCode::PageDown => self.go(PAGE_ROWS),
            KeyCode::Home | KeyCode::Char('g') => self.go(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.go(isize::MAX),
            KeyCode::Char(' ' | 'p') if self.player.is_none() => self.pause(),
            code => return self.player.as_mut().map_or(Action::None, |player| player.key(code)),
        }
        Action::Draw
    }

    fn pause(&mut self) {
        self.paused = !self.paused;
        if let Some(scene) = self.waiting.take() {
            self.scene = Some(scene);
        }
    }

    /// Folds or unfolds the program under the cursor.
    fn fold(&mut self) {
        let program = match self.chosen {
            Some(TableRow::Program(id)) => Some(id),
            Some(TableRow::Thread(id)) => {
                self.account().and_then(|account| account.thread(id)).map(|thread| thread.info.program)
            }
            None => None,
        };
        let Some(program) = program else { return };
        if !self.folded.remove(&program) {
            self.folded.insert(program);
        }
        self.chosen = Some(TableRow::Program(program));
    }

    fn go(&mut self, by: isize) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else { return };
        let at = self.chosen.and_then(|chosen| rows.iter().position(|row| *row == chosen));
        // Without a cursor, the first key shows it at the end where the key would go.
        let to = match at {
            None if by > 0 && by != isize::MAX => 0,
            None => 0_usize.saturating_add_signed(by),
            Some(at) => at.saturating_add_signed(by),
        };
        self.chosen = rows.get(to.min(last)).copied();
    }
}
