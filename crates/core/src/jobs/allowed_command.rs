//! Which commands an agent runs: programs with their arguments.

use std::collections::BTreeMap;
use std::str::FromStr;

/// A command that may be run, written as in a shell: `/usr/local/bin/backup --all`. The program and every argument must match
/// exactly. `*` stands for exactly one argument that does not begin with `-`; `**`, as the last word, stands for any number of
/// arguments. Put a word that contains a space, a quote or a `*` into single or double quotes; nothing inside quotes is special.
/// No other shell syntax is supported.
///
/// A variable can make a program do anything, so whoever runs a command sets none unless they stand in front of it:
/// `LEVEL=* PWD=/var/backups /usr/local/bin/backup --all`. `*` stands for any value, and `PWD` for the directory it runs in.
///
/// ```
/// use tenure_core::AllowedCommand;
/// let ping: AllowedCommand = "/usr/bin/ping -c 1 *".parse().unwrap();
/// let allows = |words: &str| ping.allows(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
/// assert!(allows("/usr/bin/ping -c 1 example.org"));
/// assert!(!allows("/usr/bin/ping -c 1 -f") && !allows("/usr/bin/ping -c 1 a b") && !allows("/usr/bin/ping -c 1"));
/// assert!(!allows("LD_PRELOAD=/tmp/x.so /usr/bin/ping -c 1 example.org"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AllowedCommand {
    /// As it was written.
    text: String,
    /// Variables that may be set, and to what; `None`: to anything.
    variables: BTreeMap<String, Option<String>>,
    program: String,
    words: Vec<Word>,
    /// Any further arguments may follow.
    open: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Word {
    Exactly(String),
    One,
}

impl AllowedCommand {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The program's full path.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether this entry allows what a job needs, in one list: variables (`NAME=value`), then the program and its arguments. To start a
    /// program, ask [`runs`](AllowedCommand::runs) and [`sets`](AllowedCommand::sets): they cannot take the program for a variable.
    pub fn allows(&self, words: &[String]) -> bool {
        let count = words.iter().take_while(|word| assignment(word).is_some()).count();
        let (variables, command) = words.split_at(count);
        let may_set = |(name, value)| self.sets(name, value);
        variables.iter().filter_map(|word| assignment(word)).all(may_set) && self.runs(command)
    }

    /// Whether this entry allows the variable, or with `PWD` the directory.
    pub fn sets(&self, name: &str, value: &str) -> bool {
        self.variables.get(name).is_some_and(|allowed| allowed.as_deref().is_none_or(|only| only == value))
    }

    /// Whether this entry allows the program, which comes first, with these arguments.
    pub fn runs(&self, command: &[String]) -> bool {
        let Some((program, args)) = command.split_first() else { return false };
        let fits = |(word, arg): (&Word, &String)| match word {
            Word::Exactly(text) => text == arg,
            Word::One => !arg.starts_with('-'),
        };
        let enough = if self.open { args.len() >= self.words.len() } else { args.len() == self.words.len() };
        *program == self.program && enough && self.words.iter().zip(args).all(fits)
    }
}

impl FromStr for AllowedCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowedCommand, String> {
        let mut texts = split(text)?.into_iter().peekable();
        let mut variables = BTreeMap::new();
        while let Some((word, quoted)) = texts.next_if(|(word, _)| assignment(word).is_some()) {
            let Some((name, value)) = assignment(&word) else { continue };
            let any = value == "*" && !quoted;
            if value.contains('*') && !quoted && !any {
                return Err(format!("{word:?}: * must be the whole value, or stand in quotes"));
            }
            variables.insert(name.to_owned(), (!any).then(|| value.to_owned()));
        }
        let program = texts.next().map(|(text, _)| text).unwrap_or_default();
        if !program.starts_with('/') {
            return Err("must begin with the full path of a program".to_owned());
        }
        let (mut words, mut open) = (Vec::new(), false);
        for (text, quoted) in texts {
            if open {
                return Err("** must be the last word".to_owned());
            }
            match text.as_str() {
                "**" if !quoted => open = true,
                "*" if !quoted => words.push(Word::One),
                _ if text.contains('*') && !quoted => {
                    return Err(format!("{text:?}: * must be a word of its own, or stand in quotes"));
                }
                _ => words.push(Word::Exactly(text)),
            }
        }
        Ok(AllowedCommand { text: text.to_owned(), variables, program, words, open })
    }
}

/// The name and value of a variable, if this is how one is set. No program is named that way: its path begins with `/`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value))
}

/// The words of a command, each with whether any part of it was quoted.
fn split(text: &str) -> Result<Vec<(String, bool)>, String> {
    let (mut words, mut word, mut within) = (Vec::new(), None::<(String, bool)>, None);
    for c in text.chars() {
        match (c, within) {
            (c, Some(quote)) if c == quote => within = None,
            (c, Some(_)) => word.get_or_insert_default().0.push(c),
            ('\'' | '"', None) => {
                within = Some(c);
                word.get_or_insert_default().1 = true;
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().0.push(c),
        }
    }
    words.extend(word);
    if within.is_some() { Err("a quote is not closed".to_owned()) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(command: &str, args: &[&str]) -> bool {
        let words: Vec<String> =
            std::iter::once(&"/bin/x").chain(args).map(|word| (*word).to_owned()).collect();
        command.parse::<AllowedCommand>().expect(command).allows(&words)
    }

    #[test]
    fn a_command_is_allowed_word_by_word() {
        for (command, yes, no) in [
            ("/bin/x", &[&[][..]][..], &[&["a"][..], &[""]][..]),
            ("/bin/x -a b", &[&["-a", "b"]], &[&[], &["-a"], &["b", "-a"], &["-a", "b", "c"], &["-a b"]]),
            ("/bin/x 'a b'  \"c's\"", &[&["a b", "c's"]], &[&["a", "b", "c's"], &["'a b'", "c's"]]),
            ("/bin/x ''", &[&[""]], &[&[], &["a"]]),
            (
                "/bin/x to * .",
                &[&["to", "a b", "."], &["to", "", "."]],
                &[&["to", "-a", "."], &["to", "."], &["to", "a", "b", "."]],
            ),
            ("/bin/x **", &[&[], &["a"], &["-a", "b"]], &[]),
            ("/bin/x -a * **", &[&["-a", "b"], &["-a", "b", "-c"]], &[&["-a"], &["-a", "-b"], &["b", "c"]]),
            ("/bin/x '*' '**'", &[&["*", "**"]], &[&["a", "b"], &["a"], &[]]),
        ] {
            yes.iter().for_each(|args| assert!(allows(command, args), "{command} must allow {args:?}"));
            no.iter().for_each(|args| assert!(!allows(command, args), "{command} must not allow {args:?}"));
        }
        let other = "/bin/y".parse::<AllowedCommand>().expect("valid");
        assert!(!other.allows(&["/bin/x".to_owned()]) && !other.allows(&[]) && !other.runs(&[]));
        assert_eq!(other.program(), "/bin/y");
    }

    #[test]
    fn a_variable_is_set_only_if_that_is_allowed() {
        let allows = |entry: &str, words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            entry.parse::<AllowedCommand>().expect(entry).allows(&words)
        };
        for (entry, words, is_allowed) in [
            ("/bin/x a", "LEVEL=full /bin/x a", false),
            ("LEVEL=* /bin/x a", "LEVEL=full /bin/x a", true),
            ("LEVEL=* /bin/x a", "/bin/x a", true),
            ("LEVEL=* /bin/x a", "LEVEL=full LD_PRELOAD=/tmp/y /bin/x a", false),
            ("LEVEL=full PWD=/var /bin/x a", "LEVEL=full PWD=/var /bin/x a", true),
            ("LEVEL=full PWD=/var /bin/x a", "LEVEL=half /bin/x a", false),
            ("LEVEL=full PWD=/var /bin/x a", "PWD=/tmp /bin/x a", false),
            ("LEVEL='*' /bin/x a", "LEVEL=full /bin/x a", false),
            ("/bin/x A=b", "/bin/x A=b", true),
            ("LEVEL=* /bin/x a", "LEVEL=full", false),
        ] {
            assert_eq!(allows(entry, words), is_allowed, "{entry}: {words}");
        }
        let entry = "LEVEL=* PWD=/var /bin/x a".parse::<AllowedCommand>().expect("valid");
        let runs =
            |words: &[&str]| entry.runs(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(runs(&["/bin/x", "a"]) && !runs(&["LEVEL=/y", "/bin/x", "a"]), "a program is no variable");
        assert!(entry.sets("LEVEL", "") && entry.sets("PWD", "/var"));
        assert!(!entry.sets("PWD", "/tmp") && !entry.sets("LANG", "C") && !entry.sets("", ""));
    }

    #[test]
    fn what_is_no_command_says_why() {
        for (bad, says) in [
            ("", "full path"),
            ("true", "full path"),
            ("* a", "full path"),
            ("/bin/x ** a", "the last word"),
            ("/bin/x --host=*", "a word of its own"),
            ("/bin/x 'a", "not closed"),
            ("A=b", "full path"),
            ("A=b* /bin/x", "the whole value"),
        ] {
            let error = bad.parse::<AllowedCommand>().expect_err(bad);
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
