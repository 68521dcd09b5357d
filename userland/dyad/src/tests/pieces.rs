//! The pieces of the standard library that programs expect: environment, time of day, random numbers, lazy
//! values, arguments that nobody takes, and what threads are started with.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use dyad_host::{Config, Outcome};

use super::{A, X};
use crate::io::stdin;
use crate::sync::{LazyLock, Semaphore};
use crate::{Result, SystemTime, env, random, rt, sys, thread};

/// What becomes of a program with this main task in a system of this configuration.
macro_rules! outcome_of {
    ($config:expr, $main:ident) => {
        dyad_host::run($config, |argument| rt::main_without_args(argument, $main))
    };
}

fn config() -> Config {
    Config {
        nodes: [X, A].to_vec(),
        ..Config::default()
    }
}

#[test]
fn arguments_of_a_program_that_takes_none_are_refused() {
    async fn main() {
        panic!("the main task has run");
    }
    fn plain() {
        panic!("the main function has run");
    }
    let with = |args: &str| Config {
        args: args.into(),
        ..config()
    };
    let outcomes: [Outcome; 2] = [
        outcome_of!(with("--verbose"), main),
        dyad_host::run(with("--verbose"), |argument| {
            rt::plain::done(rt::plain::main_without_args(argument, plain))
        }),
    ];
    for outcome in outcomes {
        assert_eq!(outcome.code, 2, "{}", outcome.output);
        let expected = "error: unknown option \"--verbose\"; this program takes none\n";
        assert_eq!(outcome.output, expected);
    }
}

#[test]
fn standard_input_is_read_from_one_position() {
    async fn main() -> Result<()> {
        let mut line = String::from("> ");
        assert_eq!(stdin().read_line(&mut line)?, 4);
        assert_eq!(line, "> one\n");
        let mut some = [0; 3];
        assert_eq!((stdin().read(&mut some)?, &some), (3, b"two"));
        let lines: Vec<String> = stdin().lines().take(3).collect::<Result<_>>()?;
        assert_eq!(lines, ["", "\u{e4}\r\r", ""]);
        // What is no text is skipped up to the end of its line.
        let e = stdin().read_line(&mut line).unwrap_err();
        assert!(e.to_string().contains("not valid UTF-8"), "{e}");
        assert_eq!(
            (stdin().read_line(&mut line)?, line.as_str()),
            (4, "> one\nlast")
        );
        assert_eq!(stdin().read_line(&mut line)?, 0);
        assert_eq!(stdin().read(&mut some)?, 0);
        let mut all = Vec::new();
        assert_eq!(stdin().read_to_end(&mut all)?, 0);
        Ok(())
    }
    let config = Config {
        input: Some(b"one\ntwo\n\xc3\xa4\r\r\r\n\n\xff\nlast".to_vec()),
        ..config()
    };
    let outcome = outcome_of!(config, main);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}

#[test]
fn the_environment_is_what_was_set() {
    async fn main() -> Result<()> {
        assert_eq!(env::var("HOME"), Some("a b=c"));
        assert_eq!(env::var("EMPTY"), Some(""));
        assert_eq!(env::var("TWICE"), Some("2"));
        assert_eq!(env::var("HOM"), None);
        assert_eq!(env::vars().count(), 4);
        // The arguments are what they are without an environment.
        crate::Args::load()?.expect_options(&[])
    }
    let set = ["HOME=a b=c", "EMPTY=", "TWICE=1", "TWICE=2"];
    let config = Config {
        env: set.map(String::from).to_vec(),
        ..config()
    };
    let outcome = outcome_of!(config, main);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}

#[test]
fn the_time_of_day_goes_on_from_the_start() {
    const START: u64 = 1_767_225_600_000_000_000;
    async fn main() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(START);
        let now = SystemTime::now();
        let since = now.duration_since(start).unwrap();
        assert!(since < Duration::from_secs(60), "{since:?}");
        let hour = Duration::from_secs(3600);
        assert_eq!(start.duration_since(start + hour), Err(hour));
        assert_eq!((start + hour) - hour, start);
        assert!(now.elapsed().is_ok() && (now + hour).elapsed().is_err());
    }
    let config = Config {
        wall_ns: START,
        ..config()
    };
    let outcome = outcome_of!(config, main);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}

#[test]
fn random_numbers_repeat_with_their_seed() {
    async fn main() {
        let mut bytes = [0; 11];
        random::fill(&mut bytes);
        let dice: Vec<u64> = (0..600).map(|_| random::below(6)).collect();
        for side in 0..6 {
            let count = dice.iter().filter(|d| **d == side).count();
            assert!((50..150).contains(&count), "{count} times {side}");
        }
        assert!(dice.iter().all(|d| *d < 6));
        crate::println!("{bytes:?} {dice:?}");
    }
    let of = |random| {
        let outcome = outcome_of!(Config { random, ..config() }, main);
        assert_eq!(outcome.code, 0, "{}", outcome.output);
        outcome.output
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn a_lazy_value_is_made_once_by_its_first_user() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    static VALUE: LazyLock<u64> = LazyLock::new(|| {
        MADE.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(5));
        42
    });
    async fn main() -> Result<()> {
        assert_eq!(MADE.load(Ordering::Relaxed), 0);
        let users: Vec<_> = (0..4)
            .map(|_| thread::spawn(|| *VALUE))
            .collect::<Result<_>>()?;
        for user in users {
            assert_eq!(user.join()?, 42);
        }
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
        let local = LazyLock::new(|| MADE.load(Ordering::Relaxed) + 1);
        assert_eq!((*local, *LazyLock::force(&local)), (2, 2));
        Ok(())
    }
    let outcome = outcome_of!(config(), main);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}

#[test]
fn the_limit_of_threads_is_named() {
    async fn main() -> Result<()> {
        let last = Arc::new(Semaphore::new(0));
        let mut threads = Vec::new();
        let e = loop {
            let last = last.clone();
            match thread::spawn(move || last.acquire()) {
                Ok(thread) => threads.push(thread),
                Err(e) => break e,
            }
        };
        assert_eq!(e.system(), Some(sys::Error::Full));
        assert_eq!(
            e.to_string(),
            "a program has at most 64 threads at a time, its first one included"
        );
        assert_eq!(threads.len(), 63);
        threads.iter().for_each(|_| last.release());
        for thread in threads {
            thread.join()?;
        }
        Ok(())
    }
    let outcome = outcome_of!(config(), main);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}

#[test]
fn threads_have_names_and_bounded_stacks() {
    async fn main() -> Result<()> {
        let name = || thread::current().name().map(|n| String::from(&*n));
        assert_eq!(name(), None);
        let named = thread::Builder::new()
            .name("worker")
            .stack_size(thread::STACK_SIZE)
            .spawn(name)?;
        assert_eq!(named.join()?.as_deref(), Some("worker"));
        // The next thread with the number has none.
        assert_eq!(thread::spawn(name)?.join()?, None);
        let refused = thread::Builder::new()
            .stack_size(thread::STACK_SIZE + 1)
            .spawn(|| ());
        let e = refused.map(drop).unwrap_err();
        assert_eq!(e.system(), Some(sys::Error::TooLarge));
        assert_eq!(
            e.to_string(),
            "the stack of a thread has at most 1024 KiB, not 1025"
        );
        Ok(())
    }
    let outcome = outcome_of!(config(), main);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}
