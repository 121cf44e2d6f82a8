//! Mode of the survey of other programs.

use clap::ValueEnum;

/// How the load and the pinned threads of other programs are measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SurveyMode {
    #[default]
    Auto,
    Full,
    None,
}
