//! Completions, as the shells themselves give them: each shell loads its script and is asked what
//! it would offer for a line. No terminal is needed.

use crate::hidden;
use crate::util::{Sandbox, installed, skip};
use std::path::PathBuf;
use std::process::Command;

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// A shell with trimtab's completions.
struct Shell<'s> {
    name: &'static str,
    program: PathBuf,
    script: PathBuf,
    sandbox: &'s Sandbox,
}

impl Shell<'_> {
    /// Returns the words that the shell offers for a line that begins with `trimtab`. Of a value
    /// behind an equals sign, the value alone.
    fn offers(&self, typed: &str) -> Vec<String> {
        let mut command = match self.name {
            "bash" => self.bash(typed),
            "zsh" => self.zsh(typed),
            _ => self.fish(typed),
        };
        let done = command
            .env("HOME", self.sandbox.path("home"))
            .env("TERM", "dumb")
            .current_dir(self.sandbox.path("shared"))
            .output()
            .unwrap();
        assert!(done.stderr.is_empty(), "{}: {typed:?}: {done:?}", self.name);
        // fish puts a tab and a description behind a word.
        let word = |line: &str| line.split('\t').next().unwrap_or_default().trim().to_owned();
        let value = |word: String| match word.split_once('=') {
            Some((_, value)) if !value.is_empty() => value.to_owned(),
            _ => word,
        };
        String::from_utf8_lossy(&done.stdout).lines().map(word).map(value).collect()
    }

    /// Calls the function that the script registers, as bash does. It gets the words as bash breaks
    /// them: an equals sign is a word of its own.
    fn bash(&self, typed: &str) -> Command {
        let broken = typed.replace('=', " = ");
        let broken = broken.strip_suffix(' ').filter(|_| typed.ends_with('=')).unwrap_or(&broken);
        let words: Vec<&str> = ["trimtab"].into_iter().chain(broken.split(' ')).collect();
        let last = words.len() - 1;
        let cursor = if words[last] == "=" { "" } else { words[last] };
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            "source '{}'; registered=$(complete -p trimtab); called=${{registered##*-F }}; \
             COMP_WORDS=({}); COMP_CWORD={last}; COMP_LINE='trimtab {typed}'; COMP_POINT=${{#COMP_LINE}}; \
             \"${{called%% *}}\" trimtab '{cursor}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            self.script.display(),
            quoted.join(" "),
            words[last - 1],
        );
        let mut command = Command::new(&self.program);
        command.args(["--norc", "-c", &line]);
        command
    }

    fn fish(&self, typed: &str) -> Command {
        let line = format!("source '{}'; complete -C 'trimtab {typed}'", self.script.display());
        let mut command = Command::new(&self.program);
        command.args(["--no-config", "-c", &line]);
        command
    }

    /// Types the line into a shell at a pseudo-terminal, and presses the tab key. `compadd`, to
    /// which zsh gives each list of words, writes down the words that match.
    fn zsh(&self, typed: &str) -> Command {
        let offered = self.sandbox.path("offered");
        let setup = self.sandbox.write(
            "setup.zsh",
            format!(
                r#"PROMPT=
fpath=('{folder}' $fpath)
autoload -Uz compinit
compinit -u -D
bindkey '^I' complete-word
compadd() {{
    # Lists that the completion system only examines.
    if [[ "${{@[1,(i)(-|--)]}}" == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a fitting
    builtin compadd -A fitting "$@"
    (( $#fitting )) && print -rl -- $fitting >> '{offered}'
    builtin compadd "$@"
}}
over() {{ print -rn -- "@@""over@@" }}
comppostfuncs=(over)
print -rn -- "@@""ready@@"
"#,
                folder = self.script.parent().unwrap().display(),
                offered = offered.display(),
            ),
        );
        let drive = format!(
            r#"zmodload zsh/zpty
: > '{offered}'
zpty shell '{zsh}' -f -i
zpty -w shell "source '{setup}'"
zpty -r shell answer '*@@ready@@*'
zpty -w -n shell 'trimtab {typed}'$'\t'
zpty -r shell answer '*@@over@@*'
zpty -d shell
sort -u '{offered}'
"#,
            offered = offered.display(),
            zsh = self.program.display(),
            setup = setup.display(),
        );
        // A shell that never answers must not keep the tests from ending.
        let mut command = Command::new("timeout");
        command.arg("120").arg(&self.program).args(["-f", "-c", &drive]);
        command
    }
}

/// Calls `check` for each installed shell, and says which are missing.
fn each_shell(check: impl Fn(&Shell<'_>)) {
    let sandbox = Sandbox::new();
    for name in SHELLS {
        let Some(program) = installed(name) else {
            skip(&format!("{name} is not installed: its completions are not tried"));
            continue;
        };
        // zsh finds a function in a file of the same name.
        let text = sandbox.lab(&format!("generate {name}")).ends().ok();
        let script = sandbox.write(&format!("{name}/_trimtab"), text);
        check(&Shell { name, program, script, sandbox: &sandbox });
    }
}

#[test]
fn shells_accept_their_scripts() {
    each_shell(|shell| {
        let flag = if shell.name == "fish" { "--no-execute" } else { "-n" };
        let checked = Command::new(&shell.program).arg(flag).arg(&shell.script).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{}: {checked:?}", shell.name);
    });
}

#[test]
fn options_and_their_values_are_offered() {
    each_shell(|shell| {
        for (typed, wanted) in [
            ("run --or", "--or-fewer"),
            ("run --balance=e", "exchange"),
            ("run --wait-policy s", "sleep spin"),
            ("run --wait-policy=y", "yield"),
            ("attach --balance e", "exchange"),
            ("attach --balance=e", "exchange"),
            ("replay --policy nu", "nudge"),
            ("sim --value b", "balance busy"),
            ("sim sw", "swarm"),
        ] {
            let mut offered = shell.offers(typed);
            offered.sort();
            assert_eq!(offered.join(" "), wanted, "{}: {typed:?}", shell.name);
        }
        let mut all = shell.offers("run --balance=");
        all.sort();
        let policies = "auto brm brm-paper exchange float nudge pinned serial speed";
        assert_eq!(all.join(" "), policies, "{}", shell.name);
    });
}

#[test]
fn commands_that_take_processes_offer_their_ids() {
    let own = std::process::id().to_string();
    each_shell(|shell| {
        for command in ["attach", "detach", "top", "tag", "untag", "counters"] {
            let offered = shell.offers(&format!("{command} {own}"));
            assert!(offered.contains(&own), "{}: {command}: {offered:?}", shell.name);
        }
    });
}

#[test]
fn the_program_is_offered_after_the_options() {
    each_shell(|shell| {
        for typed in ["run ec", "run -c 2 ec", "run --balance ec", "doctor ec", "tune ec"] {
            let offered = shell.offers(typed);
            assert!(offered.contains(&"echo".to_owned()), "{}: {typed:?}: {offered:?}", shell.name);
        }
        // The value of --balance needs the equals sign: the program follows after a space.
        let offered = shell.offers("run --balance ex");
        assert!(!offered.contains(&"exchange".to_owned()), "{}: {offered:?}", shell.name);
        // `tune` takes a program or a command of its own.
        let offered = shell.offers("tune li");
        assert!(offered.contains(&"list".to_owned()), "{}: {offered:?}", shell.name);
    });
}

#[test]
fn hidden_words_are_never_offered() {
    let hidden = hidden::words();
    each_shell(|shell| {
        let commands = shell.offers("");
        for shown in ["run", "untag", "guest-agent", "bench"] {
            assert!(commands.contains(&shown.to_owned()), "{}: {commands:?}", shell.name);
        }
        for hidden in &hidden {
            // The first letters, as a user would type them.
            let begun = &hidden.word[..hidden.word.len().min(4)];
            let typed: Vec<&str> = hidden.before.iter().map(String::as_str).chain([begun]).collect();
            let offered = shell.offers(&typed.join(" "));
            assert!(!offered.contains(&hidden.word), "{}: {typed:?}: {offered:?}", shell.name);
        }
    });
}
