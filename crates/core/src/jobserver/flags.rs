//! Words of build tools: how many jobs a command line or `MAKEFLAGS` asks for, and the text that
//! names a jobserver.

/// Jobs that words ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Jobs {
    /// No word is about jobs.
    Unsaid,
    /// As many as there are: `-j` without a number. The changes leave that out of the command.
    Open(Vec<WordChange>),
    /// A number of the user's own; the words that state it.
    Own(String),
}

/// Change of a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WordChange {
    /// Position of the word, counted from the program's name.
    pub at: usize,
    /// The word that takes its place; `None` if there is none.
    pub instead: Option<String>,
}

/// Short options of GNU make that take no value.
const MAKE_FLAGS: &str = "bBdeikLmnpqrRsStvw";
/// Short options of GNU make that take a value, attached or as the next word.
const MAKE_VALUED: &str = "CEfIoW";
/// Its long options whose value is the next word if it is not attached.
const MAKE_LONG_VALUED: [&str; 10] = [
    "--assume-new",
    "--assume-old",
    "--directory",
    "--eval",
    "--file",
    "--include-dir",
    "--makefile",
    "--new-file",
    "--old-file",
    "--what-if",
];

/// Returns the jobs that the command line of GNU make asks for. Its first word is the program.
pub fn jobs_of_make(command: &[&str]) -> Jobs {
    let mut changes = Vec::new();
    let mut at = 1;
    while let Some(word) = command.get(at) {
        let next = command.get(at + 1).copied();
        // make takes the next word for the number if it begins with a digit.
        let number = next.filter(|next| next.starts_with(|c: char| c.is_ascii_digit()));
        match *word {
            "--" => break,
            "--jobs" => match number {
                Some(number) => return Jobs::Own(format!("{word} {number}")),
                None => changes.push(WordChange { at, instead: None }),
            },
            long if long.starts_with("--jobs=") => return Jobs::Own(long.to_owned()),
            long if MAKE_LONG_VALUED.contains(&long) => at += 1,
            long if long.starts_with("--") => {}
            short if short.starts_with('-') => match short_of_make(short) {
                Short::Jobs(before) => match number {
                    Some(number) => return Jobs::Own(format!("{word} {number}")),
                    None => changes.push(WordChange { at, instead: before }),
                },
                Short::Own => return Jobs::Own(short.to_owned()),
                Short::TakesNext => at += 1,
                Short::Other => {}
            },
            _ => {}
        }
        at += 1;
    }
    if changes.is_empty() { Jobs::Unsaid } else { Jobs::Open(changes) }
}

/// Meaning of a word of short options.
enum Short {
    /// It ends in a `j`; the word without that.
    Jobs(Option<String>),
    /// A `j` with a value behind it.
    Own,
    /// The next word is a value.
    TakesNext,
    Other,
}

fn short_of_make(word: &str) -> Short {
    for (at, letter) in word.char_indices().skip(1) {
        let rest = &word[at + letter.len_utf8()..];
        match letter {
            'j' if rest.is_empty() => return Short::Jobs((at > 1).then(|| word[..at].to_owned())),
            'j' => return Short::Own,
            _ if MAKE_FLAGS.contains(letter) => {}
            _ if MAKE_VALUED.contains(letter) && rest.is_empty() => return Short::TakesNext,
            // The rest is a value (`-O`, `-l` and `-W` have one), or make refuses the word.
            _ => return Short::Other,
        }
    }
    Short::Other
}

/// Returns the number of jobs that the command line of ninja or cargo states, in its words.
/// Neither has an option for jobs without a value. What follows `--` is for another program.
pub fn stated_jobs(command: &[&str]) -> Option<String> {
    let words = command.iter().skip(1).take_while(|word| **word != "--");
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match *word {
            "-j" | "--jobs" => {
                return Some(words.peek().map_or((*word).to_owned(), |n| format!("{word} {n}")));
            }
            _ if word.starts_with("--jobs=") => return Some((*word).to_owned()),
            _ if word.strip_prefix("-j").is_some_and(|rest| !rest.is_empty()) => {
                return Some((*word).to_owned());
            }
            _ => {}
        }
    }
    None
}

/// Returns whether the text of `MAKEFLAGS` names a jobserver.
pub fn names_jobserver(makeflags: &str) -> bool {
    let prefixes = ["--jobserver-auth=", "--jobserver-fds="];
    makeflags.split_whitespace().any(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
}

/// Returns the word of `MAKEFLAGS` that states a number of jobs. Variables behind `--` are none.
pub fn stated_in_makeflags(makeflags: &str) -> Option<String> {
    let words = makeflags.split_whitespace().take_while(|word| *word != "--");
    let own = |word: &&str| word.starts_with("-j") || word.starts_with("--jobs");
    words.filter(|word| !names_jobserver(word)).find(own).map(str::to_owned)
}

/// Returns the value of `MAKEFLAGS` for make and ninja: the user's flags, and behind them the
/// jobserver, in the way GNU make writes them.
pub fn makeflags(users: &str, tokens: u32, auth: &str) -> String {
    let jobserver = format!("-j{} --jobserver-auth={auth}", tokens + 1);
    let (flags, variables) = match users.split_once("-- ") {
        Some((flags, variables)) if flags.is_empty() || flags.ends_with(' ') => (flags, Some(variables)),
        _ => (users, None),
    };
    let flags = flags.trim_end();
    // Without a dash in front, GNU make takes the first word for letters of flags.
    let mut value = format!("{flags} {jobserver}");
    if let Some(variables) = variables {
        value += &format!(" -- {variables}");
    }
    value
}

/// Returns the value of `CARGO_MAKEFLAGS`, with the older word that old versions of cargo read.
pub fn cargo_makeflags(auth: &str) -> String {
    format!("-j --jobserver-fds={auth} --jobserver-auth={auth}")
}
