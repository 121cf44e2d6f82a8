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

impl SurveyMode {
    /// Returns the word of the option.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Full => "full",
            Self::None => "none",
        }
    }

    /// Returns the mode of a word of the option.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Auto, Self::Full, Self::None].into_iter().find(|mode| mode.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_option() {
        for mode in SurveyMode::value_variants() {
            assert_eq!(mode.to_possible_value().unwrap().get_name(), mode.word());
            assert_eq!(SurveyMode::of_word(mode.word()), Some(*mode));
        }
        assert_eq!(SurveyMode::of_word("what"), None);
    }
}
