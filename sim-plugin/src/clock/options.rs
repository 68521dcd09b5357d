// SPDX-License-Identifier: GPL-2.0-or-later
//! Options of the clock. They are taken out before the others are read.

use std::path::PathBuf;
use std::time::Duration;

/// For how long a stopped machine is waited for, unless the launcher says something else.
const PATIENCE_MS: u64 = 1000;

/// Options of the clock; there is one if `clock` is given. All the rest is in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockOptions {
    /// File of the words that all plugins share.
    pub words: PathBuf,
    /// File of the CXL pool.
    pub pages: PathBuf,
    /// Abstract name of the broker's socket for plugins.
    pub doorbells: String,
    /// For how long a stopped machine is waited for; `None`: for ever.
    pub patience: Option<Duration>,
}

const KEYS: [&str; 4] = ["clock", "pages", "doorbells", "patience_ms"];

impl ClockOptions {
    /// Takes the clock's options out of all: what is left are those of others.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and what is possible.
    pub fn split<'a>(args: &[&'a str]) -> Result<(Option<ClockOptions>, Vec<&'a str>), String> {
        let mut values = [None; KEYS.len()];
        let mut rest = Vec::new();
        for &arg in args {
            let (key, value) = arg.split_once('=').unwrap_or((arg, ""));
            match KEYS.iter().position(|k| *k == key) {
                Some(i) if values[i].replace(value).is_none() => {}
                Some(_) => return Err(format!("option {key} is given twice; give it once")),
                None => rest.push(arg),
            }
        }
        let [words, pages, doorbells, patience] = values;
        let Some(words) = words else {
            return match KEYS.iter().zip(values).find(|(_, v)| v.is_some()) {
                Some((key, _)) => Err(format!("{key} needs clock; write clock=FILE")),
                None => Ok((None, rest)),
            };
        };
        let needed = |key: &str, value: Option<&'a str>| {
            value.ok_or_else(|| format!("clock needs {key}; write {key}=..."))
        };
        let patience = match patience.map(str::parse) {
            None => PATIENCE_MS,
            Some(Ok(ms)) => ms,
            Some(Err(_)) => return Err("patience_ms has to be a number; 0: for ever".into()),
        };
        let options = ClockOptions {
            words: words.into(),
            pages: needed("pages", pages)?.into(),
            doorbells: needed("doorbells", doorbells)?.into(),
            patience: (patience != 0).then(|| Duration::from_millis(patience)),
        };
        Ok((Some(options), rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_others_are_left() {
        let (clock, rest) = ClockOptions::split(&["out=x", "level=count"]).unwrap();
        assert_eq!((clock, rest), (None, vec!["out=x", "level=count"]));
        let args = [
            "out=x",
            "clock=s",
            "pages=p",
            "doorbells=d",
            "patience_ms=0",
        ];
        let (clock, rest) = ClockOptions::split(&args).unwrap();
        assert_eq!(rest, ["out=x"]);
        assert_eq!(clock.unwrap().patience, None);
        let (clock, _) = ClockOptions::split(&args[..4]).unwrap();
        assert_eq!(clock.unwrap().patience, Some(Duration::from_secs(1)));
    }

    #[test]
    fn wrong_options_are_explained() {
        for (args, message) in [
            (
                &["doorbells=1"][..],
                "doorbells needs clock; write clock=FILE",
            ),
            (&["clock=s"], "clock needs pages; write pages=..."),
            (
                &["clock=s", "clock=t"],
                "option clock is given twice; give it once",
            ),
            (
                &["clock=s", "pages=p", "doorbells=d", "patience_ms=x"],
                "patience_ms has to be a number; 0: for ever",
            ),
        ] {
            assert_eq!(ClockOptions::split(args), Err(message.into()));
        }
    }
}
