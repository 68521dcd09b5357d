//! Standard input of a run's program.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use dyad_abi::service::MAX_INPUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::signals;
use crate::size;

/// How often a wait for input looks for Ctrl-C.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// This command's own, which can be read only once.
static OWN: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();

/// The content of a file, or for `-` what this command is given.
///
/// # Errors
///
/// If it cannot be read, or is too long.
pub(super) fn read(file: &str) -> Result<Vec<u8>, String> {
    match file {
        "-" => {
            let own = || all("the standard input", std::io::stdin().lock());
            OWN.get_or_init(own).clone()
        }
        _ => match File::open(file) {
            Ok(open) => all(file, open),
            Err(e) => Err(format!(
                "--stdin {file}: {e}; give a file that exists, or `-` for the input of this command"
            )),
        },
    }
}

fn all(name: &str, mut from: impl Read + AsFd) -> Result<Vec<u8>, String> {
    let fails = |e: &dyn std::fmt::Display| format!("--stdin: cannot read {name}: {e}");
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        // A read goes on after a signal, so that Ctrl-C would not end it.
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&LOOK)) {
            _ if signals::count() > 0 => return Err(fails(&"interrupted")),
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(fails(&e)),
        }
        match from.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(fails(&e)),
        }
        if bytes.len() as u64 > MAX_INPUT {
            return Err(format!(
                "--stdin: {name} has more than {}, the most that a program can be given: give it a part",
                size::show(MAX_INPUT)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn input_is_bounded() {
        for (len, good) in [(0, true), (MAX_INPUT, true), (MAX_INPUT + 1, false)] {
            let (read, mut write) = std::io::pipe().unwrap();
            let writer = std::thread::spawn(move || {
                // It ends early where the reader has had enough.
                let _ = write.write_all(&vec![7; len as usize]);
            });
            match all("x", read) {
                Ok(bytes) => assert!(good && bytes.len() as u64 == len),
                Err(e) => assert!(!good && e.contains("x has more than 1 MiB"), "{e}"),
            }
            writer.join().unwrap();
        }
        let e = read("no such file").unwrap_err();
        assert!(e.starts_with("--stdin no such file: "), "{e}");
    }
}
