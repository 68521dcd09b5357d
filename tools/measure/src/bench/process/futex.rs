//! Games of two threads, one on each node, that wake each other by turns: time, wake-ups and messages by turns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::record::name::DOORBELLS;
use serde_json::{Value, json};

use super::{Counters, FITS, Line, Process, counter, line};

/// Least messages of a wake-up if kernels exchange messages.
const MESSAGES: f64 = 2.0;
/// Most doorbells of a wake-up over a fused kernel. What the run rings beside the games counts too.
const DOORBELLS_EACH: f64 = 1.1;
/// How much longer games take by message, at least.
const LONGER: f64 = 1.5;

/// A game.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Game {
    /// Nanoseconds.
    pub ns: u64,
    /// Threads that slept and were woken.
    pub wakes: u64,
    /// Messages of both nodes.
    pub messages: u64,
}

/// All games of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Games {
    /// By turns of each thread.
    pub games: BTreeMap<u64, Game>,
    /// Doorbells that the run has rung.
    pub doorbells: u64,
}

impl Games {
    /// What a run has reported of games with so many turns.
    pub(super) fn read(counters: &Counters, turns: &[u64]) -> Result<Games, String> {
        let mut all = Games {
            doorbells: counter(counters, DOORBELLS)?,
            ..Games::default()
        };
        for &turns in turns {
            let of = |name: &str| counter(counters, &format!("futex.{turns}.{name}"));
            let game = Game {
                ns: of("ns")?,
                wakes: of("wakes")?,
                messages: of("messages")?,
            };
            all.games.insert(turns, game);
        }
        Ok(all)
    }

    /// The time by turns.
    fn line(&self) -> Option<Line> {
        let points = self
            .games
            .iter()
            .map(|(&turns, g)| (turns as f64, g.ns as f64));
        line(&points.collect::<Vec<_>>())
    }

    fn per_wake(&self, count: impl Fn(&Game) -> u64) -> f64 {
        let sum = |count: &dyn Fn(&Game) -> u64| self.games.values().map(count).sum::<u64>() as f64;
        sum(&count) / sum(&|g| g.wakes).max(1.0)
    }

    fn messages(&self) -> f64 {
        self.per_wake(|g| g.messages)
    }

    fn bells(&self) -> f64 {
        let wakes = self.games.values().map(|g| g.wakes).sum::<u64>();
        self.doorbells as f64 / wakes.max(1) as f64
    }
}

impl Process {
    /// What the games do not show that they must, in a model.
    pub(super) fn problem_of_games(&self, model: &'static str) -> Option<String> {
        let of = |by_message| self.games.get(&(model, by_message));
        let (Some(fused), Some(multiple)) = (of(false), of(true)) else {
            return Some(format!("{model}: games are missing"));
        };
        for (kernels, games) in [("fused", fused), ("multiple", multiple)] {
            let (lone, turns) = (|g: &Game| g.wakes == 0, games.line());
            if games.games.values().any(lone) {
                return Some(format!("{model}, {kernels}: a game without wake-ups"));
            }
            match turns {
                Some(line) if line.r2 >= FITS => {}
                _ => return Some(format!("{model}, {kernels}: games are no line")),
            }
        }
        if fused.messages() > 0.0 || fused.bells() > DOORBELLS_EACH {
            let (messages, bells) = (fused.messages(), fused.bells());
            return Some(format!(
                "{model}: a wake-up over a fused kernel takes {messages:.2} messages and {bells:.2} doorbells"
            ));
        }
        if multiple.messages() < MESSAGES {
            let messages = multiple.messages();
            return Some(format!("{model}: a wake-up takes {messages:.2} messages"));
        }
        let longer = multiple.line()?.slope / fused.line()?.slope;
        (longer < LONGER)
            .then(|| format!("{model}: games by message take {longer:.2} times as long"))
    }

    /// Games as a table.
    pub(super) fn table_of_games(&self) -> String {
        let mut out = String::from(
            "\n| model | kernels | us for each turn | R2 | wake-ups | messages for each | doorbells for each |\n\
             |---|---|---:|---:|---:|---:|---:|\n",
        );
        for (&(model, by_message), games) in &self.games {
            if let Some(line) = games.line() {
                let wakes = games.games.values().map(|g| g.wakes).sum::<u64>();
                // Writing to a string cannot fail.
                let _ = writeln!(
                    out,
                    "| {model} | {} | {:.2} | {:.4} | {wakes} | {:.2} | {:.2} |",
                    super::kernels(by_message),
                    line.slope / 1000.0,
                    line.r2,
                    games.messages(),
                    games.bells()
                );
            }
        }
        out
    }

    /// Games in the JSON form.
    pub(super) fn json_of_games(&self) -> Vec<Value> {
        let each = self.games.iter().flat_map(|(&(model, by_message), games)| {
            games.games.iter().map(move |(&turns, game)| {
                json!({
                    "model": model, "kernels": super::kernels(by_message), "turns": turns,
                    "ns": game.ns, "wakes": game.wakes, "messages": game.messages,
                    "doorbells_of_run": games.doorbells,
                })
            })
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn games_of_a_run_are_read() {
        let mut counters = Counters::new();
        for turns in [10, 20] {
            for (name, n) in [("ns", 1000), ("wakes", 2), ("messages", 12)] {
                counters.insert(format!("futex.{turns}.{name}"), n * turns);
            }
        }
        counters.insert(DOORBELLS.into(), 30);
        let games = Games::read(&counters, &[10, 20]).unwrap();
        let line = games.line().unwrap();
        assert!((line.slope - 1000.0).abs() < 1e-6 && (line.r2 - 1.0).abs() < 1e-9);
        assert!((games.messages() - 6.0).abs() < 1e-9);
        assert!((games.bells() - 0.5).abs() < 1e-9);
        assert!(Games::read(&counters, &[30]).is_err());
        assert!(Games::read(&Counters::new(), &[]).is_err());
    }

    #[test]
    fn games_that_show_too_little_are_said() {
        let games = |ns: u64, messages: u64| {
            let game = |turns| Game {
                ns: ns * turns,
                wakes: 2 * turns,
                messages: messages * turns,
            };
            Games {
                games: [10, 20, 40].map(|turns| (turns, game(turns))).into(),
                doorbells: 140,
            }
        };
        let problem = |fused, multiple| {
            let mut all = Process::default();
            all.games.insert(("shared", false), fused);
            all.games.insert(("shared", true), multiple);
            assert!(all.table_of_games().contains("| shared | fused |"));
            assert!(all.json_of_games().len() >= 6);
            all.problem_of_games("shared")
        };
        assert_eq!(problem(games(1000, 0), games(9000, 12)), None);
        let why = |fused, multiple| problem(fused, multiple).unwrap();
        assert!(why(games(1000, 1), games(9000, 12)).contains("0.50 messages"));
        assert!(why(games(1000, 0), games(9000, 3)).contains("1.50 messages"));
        assert!(why(games(1000, 0), games(1100, 12)).contains("1.10 times"));
        let mut bent = games(1000, 0);
        bent.games.insert(
            80,
            Game {
                ns: 1,
                wakes: 1,
                messages: 0,
            },
        );
        assert!(why(bent, games(9000, 12)).contains("no line"));
        let missing = Process::default().problem_of_games("shared").unwrap();
        assert!(missing.contains("missing"));
    }
}
