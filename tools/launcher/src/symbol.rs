//! From addresses to names: backtraces, and addresses inside text.
//!
//! Kernel images are private to a node but linked at the same place, user programs have the same
//! addresses on both ISAs with different code at them, so a [`Symboliser`] belongs to one ISA.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use dyad_abi::Isa;
use dyad_abi::user::USER_MIN;

use crate::console::escape;

/// Names addresses of one ISA's kernel and user program.
#[derive(Default)]
pub struct Symboliser {
    images: Vec<Image>,
}

struct Image {
    path: PathBuf,
    /// Read when first needed: most runs need no names.
    loader: Option<Option<Loader>>,
}

impl std::fmt::Debug for Symboliser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.images.iter().map(|i| &i.path))
            .finish()
    }
}

impl Symboliser {
    /// A symboliser over these ELF files; files that cannot be read have no names.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Symboliser {
        let image = |path| Image { path, loader: None };
        Symboliser {
            images: paths.into_iter().map(image).collect(),
        }
    }

    /// Function and source line of an address, inlined functions innermost first.
    pub fn frames(&mut self, pc: u64) -> Vec<String> {
        // No code is there. The library adds one to what it is asked for, which is too much for a
        // register full of ones; and functions that the linker has thrown away seem to be at 0.
        if pc < USER_MIN || pc == u64::MAX {
            return Vec::new();
        }
        for image in &mut self.images {
            let path = &image.path;
            let loader = image.loader.get_or_insert_with(|| Loader::new(path).ok());
            if let Some(loader) = loader {
                // A program chooses the names of its functions and files.
                let frames: Vec<String> = (frames_in(loader, pc).iter())
                    .map(|frame| escape(frame))
                    .collect();
                if !frames.is_empty() {
                    return frames;
                }
            }
        }
        Vec::new()
    }

    /// Lines of a backtrace. All addresses but an exact innermost one are return addresses, which
    /// belong to the call before them. Calls that repeat, as those of a recursion do, are shown once.
    pub fn backtrace(&mut self, pcs: &[u64], first_is_exact: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut i = 0;
        while let Some(&pc) = pcs.get(i) {
            if let Some((period, times)) = repeated(pcs, i) {
                lines.push(match period {
                    1 => format!("     and {times} times more"),
                    _ => format!("     and these {period} calls {times} times more"),
                });
                i += period * times;
                continue;
            }
            let exact = i == 0 && first_is_exact;
            let frames = self.frames(if exact { pc } else { pc.wrapping_sub(1) });
            if frames.is_empty() {
                lines.push(format!("{i:3}: {pc:#018x}"));
            }
            for (inline, frame) in frames.into_iter().enumerate() {
                if inline == 0 {
                    lines.push(format!("{i:3}: {pc:#018x} {frame}"));
                } else {
                    lines.push(format!("     {:18} {frame}", "inlined into"));
                }
            }
            i += 1;
        }
        lines
    }

    /// The program's own functions among the callers with these return addresses, with source lines, the innermost
    /// first; `None` if there is none.
    pub fn own_callers(&mut self, pcs: &[u64]) -> Option<String> {
        const SHOWN: usize = 4;
        let mut own: Vec<String> = Vec::new();
        for pc in pcs {
            own.extend((self.frames(pc.wrapping_sub(1)).into_iter()).filter(|f| is_own(f)));
            if own.len() >= SHOWN {
                break;
            }
        }
        own.truncate(SHOWN);
        (!own.is_empty()).then(|| own.join(", from "))
    }

    /// A few words for a place in the code: its function, and a source line.
    pub fn name(&mut self, pc: u64) -> Option<String> {
        brief(&self.frames(pc))
    }

    /// The text with a name after every address that has one.
    pub fn annotate(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("0x") {
            let digits = &rest[at + 2..];
            let len = digits
                .find(|c: char| !c.is_ascii_hexdigit())
                .unwrap_or(digits.len());
            let end = at + 2 + len;
            out.push_str(&rest[..end]);
            let pc = (7..=16)
                .contains(&len)
                .then(|| u64::from_str_radix(&digits[..len], 16).ok())
                .flatten();
            if let Some(name) = pc.and_then(|pc| self.name(pc)) {
                let _ = write!(out, " <{name}>");
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }
}

/// A fault that init tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault<'a> {
    /// Where in the line the program counter ends.
    pub end: usize,
    /// The counter.
    pub pc: u64,
    /// The ISA.
    pub isa: Isa,
    /// The service that the thread was in, whose code it was; `None`: it was in its own program.
    pub service: Option<&'a str>,
}

/// The fault in a line of init.
pub fn fault(text: &str) -> Option<Fault<'_>> {
    const BEFORE: &str = " at pc 0x";
    let service = match text.strip_prefix("init: service \"") {
        Some(rest) => Some(rest.split_once("\", thread ")?.0),
        None if text.starts_with("init: program ") => None,
        None => return None,
    };
    let start = text.rfind(BEFORE)? + BEFORE.len();
    let digits = text[start..].find(' ')?;
    let pc = u64::from_str_radix(&text[start..start + digits], 16).ok()?;
    let isa = text[start + digits..].strip_prefix(" on ")?;
    let isa = Isa::ALL.into_iter().find(|known| {
        let rest = isa.strip_prefix(known.name());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    })?;
    Some(Fault {
        end: start + digits,
        pc,
        isa,
        service,
    })
}

/// The return addresses, and the ISA, in a line of a program about where a panic has been called from.
pub fn callers(text: &str) -> Option<(Vec<u64>, Isa)> {
    let (list, isa) = text.strip_prefix("  called from ")?.split_once(" on ")?;
    let isa = Isa::parse(isa)?;
    let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let pcs = list.split(' ').map(address).collect::<Option<Vec<u64>>>()?;
    Some((pcs, isa))
}

/// Whether a function with its place is of the program, and not of the standard library or the runtime.
fn is_own(frame: &str) -> bool {
    const OTHERS: [&str; 4] = [
        "(library/",
        "/library/",
        "userland/dyad/src/",
        "userland/rt/src/",
    ];
    frame.ends_with(')')
        && !frame.starts_with("dyad_spine_root ")
        && !OTHERS.iter().any(|dir| frame.contains(dir))
}

/// The innermost function; if it has no source line, the nearest one that has as well.
fn brief(frames: &[String]) -> Option<String> {
    let first = frames.first()?;
    let placed = frames
        .iter()
        .find(|f| f.ends_with(')') && !f.contains("library/"));
    Some(match placed {
        Some(placed) if placed != first => format!("{first}, in {placed}"),
        _ => first.clone(),
    })
}

fn frames_in(loader: &Loader, pc: u64) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(mut frames) = loader.find_frames(pc) {
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let Some(function) = function else { continue };
            let mut name = demangle(&function);
            if let Some((file, line)) = frame.location.and_then(|l| Some((l.file?, l.line?))) {
                let _ = write!(name, " ({}:{line})", short(file));
            }
            names.push(name);
        }
    }
    if names.is_empty() {
        let line = loader.find_location(pc).ok().flatten();
        let line = line.and_then(|l| Some(format!(" ({}:{})", short(l.file?), l.line?)));
        if let Some(symbol) = loader.find_symbol(pc) {
            names.push(demangle(symbol) + line.as_deref().unwrap_or_default());
        }
    }
    names
}

fn demangle(name: &str) -> String {
    without_long_parameters(&format!("{:#}", rustc_demangle::demangle(name)))
}

/// Longest list of generic parameters that is shown.
const MAX_PARAMETERS: usize = 40;

/// The name with `<..>` for lists of generic parameters that nobody would read.
fn without_long_parameters(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    let mut start = 0;
    let mut previous = ' ';
    for (at, c) in name.char_indices() {
        match c {
            '<' => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            // Not the arrow of a function type.
            '>' if depth > 0 && previous != '-' => {
                depth -= 1;
                if depth == 0 {
                    let list = &name[start..=at];
                    // At the start it is the type a method belongs to.
                    let short = list.len() <= MAX_PARAMETERS || start == 0;
                    out.push_str(if short { list } else { "<..>" });
                }
            }
            c if depth == 0 => out.push(c),
            _ => {}
        }
        previous = c;
    }
    if depth > 0 {
        out.push_str(&name[start..]);
    }
    out
}

/// A source path without the part that says where the workspace or the toolchain is.
fn short(file: &str) -> &str {
    for root in ["/library/", "/registry/src/"] {
        if let Some(at) = file.find(root) {
            return &file[at + 1..];
        }
    }
    let root = crate::paths::workspace_root();
    Path::new(file)
        .strip_prefix(root)
        .ok()
        .and_then(Path::to_str)
        .unwrap_or(file)
}

/// If the calls from number `at` on repeat those before them: how many calls there are in a turn, and how many turns
/// follow.
fn repeated(pcs: &[u64], at: usize) -> Option<(usize, usize)> {
    const LONGEST: usize = 4;
    (1..=LONGEST.min(at)).find_map(|period| {
        let turn = &pcs[at - period..at];
        let turns = pcs[at..].chunks_exact(period);
        let times = turns.take_while(|next| *next == turn).count();
        (times > 0).then_some((period, times))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of this very test program, which is an ELF file with line tables.
    #[inline(never)]
    fn landmark() -> u64 {
        std::hint::black_box(landmark as *const () as usize as u64)
    }

    /// Where this program's image is mapped, for a position-independent executable.
    fn load_base() -> u64 {
        let exe = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|l| l.ends_with(exe.to_str().unwrap()));
        u64::from_str_radix(line.unwrap().split('-').next().unwrap(), 16).unwrap()
    }

    #[test]
    fn callers_of_panics_are_found_in_what_programs_say() {
        let line = "  called from 0x41000010 0x41000200 on aarch64";
        let expected = (vec![0x4100_0010, 0x4100_0200], Isa::Aarch64);
        assert_eq!(callers(line), Some(expected));
        for other in [
            "called from 0x41000010 on aarch64",
            "  called from 0x41000010 on arm",
            "  called from 0x41000010, 7 on x86_64",
            "  called from home on x86_64",
            "  called from ",
        ] {
            assert_eq!(callers(other), None, "{other}");
        }
        for (frame, own) in [
            ("app::f (src/main.rs:7)", true),
            ("alloc::vec::push (library/alloc/src/vec/mod.rs:7)", false),
            (
                "alloc::vec::push (/rustc/5980/library/alloc/src/vec/mod.rs:7)",
                false,
            ),
            ("dyad::rt::panic (userland/dyad/src/rt.rs:7)", false),
            ("dyad_spine_root (src/main.rs:7)", false),
            ("app::f", false),
        ] {
            assert_eq!(is_own(frame), own, "{frame}");
        }
        // Without names the line stays as it is.
        assert_eq!(Symboliser::default().own_callers(&[0x4100_0010]), None);
    }

    #[test]
    fn faults_of_programs_are_found_in_what_init_says() {
        let line = "init: program \"p\", thread 3: write to 0x70 at pc 0x41007 on aarch64";
        let at = line.find(" on ").unwrap();
        let found = Fault {
            end: at,
            pc: 0x41007,
            isa: Isa::Aarch64,
            service: None,
        };
        assert_eq!(fault(line), Some(found));
        // The code is the service's, whichever program the thread is of.
        let line_of_service =
            "init: service \"pager\", thread 3 of \"p\": write to 0x70 at pc 0x41007 on aarch64";
        let found = fault(line_of_service).unwrap();
        assert_eq!((found.service, found.pc), (Some("pager"), 0x41007));
        let longer = format!("{line}: its stack has run over");
        assert_eq!(fault(&longer), fault(line));
        assert_eq!(fault(&format!("{line}_be")), None);
        for other in [
            &line[6..],
            "init: program \"p\" at pc 0x41007",
            "init: program \"p\" at pc 0xfg on x86_64",
            "init: program \"p\" at pc 0x on x86_64",
            "",
        ] {
            assert_eq!(fault(other), None, "{other}");
        }
    }

    #[test]
    fn every_word_can_be_asked_for() {
        let mut s = Symboliser::new([std::env::current_exe().unwrap()]);
        for pc in [0, 1, u64::MAX - 1, u64::MAX] {
            assert_eq!(s.frames(pc), Vec::<String>::new());
            assert_eq!(s.backtrace(&[pc, pc ^ 2], true).len(), 2);
        }
        let text = "x30 = 0xffffffffffffffff";
        assert_eq!(s.annotate(text), text);
    }

    #[test]
    fn names_an_address_of_this_program() {
        let pc = landmark() - load_base();
        let mut s = Symboliser::new([std::env::current_exe().unwrap()]);
        let frames = s.frames(pc);
        let found = frames
            .iter()
            .any(|f| f.contains("landmark") && f.contains("symbol.rs"));
        assert!(found, "{frames:?}");
        let text = s.annotate(&format!("pc={pc:#09x}, x=0x12 0x"));
        assert!(
            text.contains("landmark") && text.ends_with(", x=0x12 0x"),
            "{text}"
        );
    }

    #[test]
    fn long_parameters_are_left_out() {
        let long = "x::Map<core::ops::range::Range<usize>, npb::is::generate::{closure#0}>";
        assert_eq!(
            without_long_parameters(&format!("collect<{long}, alloc::vec::Vec<u32>>")),
            "collect<..>"
        );
        assert_eq!(
            without_long_parameters("new<fn() -> u8>"),
            "new<fn() -> u8>"
        );
        let method = format!("<{long} as Iterator>::next");
        assert_eq!(without_long_parameters(&method), method);
        assert_eq!(without_long_parameters("operator<"), "operator<");
    }

    #[test]
    fn calls_that_repeat_are_shown_once() {
        let mut s = Symboliser::new([PathBuf::from("/nonexistent")]);
        let lines = s.backtrace(
            &[0xa, 0xb, 0xb, 0xb, 0xc, 0xd, 0xc, 0xd, 0xc, 0xd, 0xe],
            true,
        );
        let call = |n: usize, pc: u64| format!("{n:3}: {pc:#018x}");
        let wanted = [
            call(0, 0xa),
            call(1, 0xb),
            "     and 2 times more".to_owned(),
            call(4, 0xc),
            call(5, 0xd),
            "     and these 2 calls 2 times more".to_owned(),
            call(10, 0xe),
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn unknown_addresses_stay_numbers() {
        let mut s = Symboliser::new([PathBuf::from("/nonexistent")]);
        assert_eq!(s.backtrace(&[0x1234], false), ["  0: 0x0000000000001234"]);
        assert_eq!(
            s.annotate("at 0xffffffff80001234!"),
            "at 0xffffffff80001234!"
        );
    }
}
