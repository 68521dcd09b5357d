//! Where arguments and results of calls are, on both ISAs: registers, and bytes of the native stack.
//!
//! The conventions are those of the pinned back ends; a test compares them with what those do. A call whose
//! places are not known here is a finding.

use super::lanes::Lanes;
use dyad_abi::Isa;
use std::collections::BTreeMap;

/// What a call passes and what it gives back.
///
/// Letters stand for scalars: `b`, `h`, `i`, `l`: integers and pointers of 1, 2, 4 and 8 bytes; `L`: an
/// integer of 16 bytes; `e`, `f`, `d`: floating point of 2, 4 and 8 bytes; `u`, `v`: vectors of 8 and 16
/// bytes; `B` and `H`: `b` and `h` that are extended to 4 bytes in a register; `Z`: a bit that is extended, as an argument
/// to 4 bytes, as a result to what `results` says. `s`: the
/// address of a result in memory. `|` stands before an argument that is an aggregate, and behind it. Any other letter is a type
/// whose places are not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature {
    /// Whether callees preserve nothing (`preserve_none`); else it is the C convention.
    pub preserves_nothing: bool,
    /// The scalars of the arguments.
    pub arguments: String,
    /// The scalars of the result.
    pub result: String,
}

/// What the IR that the back ends get says of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conventions {
    /// Of functions, by symbol: those of the program and those that it only declares.
    pub functions: BTreeMap<String, Signature>,
    /// Of calls with a site or another mark, by its number.
    pub sites: BTreeMap<u64, Signature>,
    /// Of calls through pointers that have no site, by the symbol of the function that makes them.
    pub plain: BTreeMap<String, Vec<Signature>>,
    /// Calls in a convention that a function they may reach has not: the caller's symbol, and what is wrong.
    pub broken: Vec<(String, String)>,
}

/// A place of an argument or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The bytes of a register that have a meaning.
    Lanes(Lanes),
    /// Bytes of the native stack: distance from the stack pointer before the call, and number.
    Stack(i64, u16),
}

/// Integer arguments, C convention.
const C: [&[u8]; 2] = [&[7, 6, 2, 1, 8, 9], &[0, 1, 2, 3, 4, 5, 6, 7]];
/// Integer arguments of at least 4 bytes, `preserve_none`. Narrower ones are where the C convention has them.
const NONE: [&[u8]; 2] = [
    &[12, 13, 14, 15, 7, 6, 2, 1, 8, 9, 11, 0],
    &[
        20, 21, 22, 23, 24, 25, 26, 27, 28, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 9, 15,
    ],
];
/// Integer results.
const RESULTS: [&[u8]; 2] = [&[0, 2, 1], &[0, 1, 2, 3, 4, 5, 6, 7]];
/// On AArch64: the address of a result in memory, C convention.
const INDIRECT: u8 = 8;
/// Vector registers for arguments.
const VECTORS: u8 = 8;
/// Vector registers for results. On x86-64 a third scalar would be on the x87 stack.
const VECTOR_RESULTS: [u8; 2] = [2, 8];

/// Bytes of a scalar.
fn bytes(letter: char) -> Option<u16> {
    Some(match letter {
        'b' | 'B' | 'Z' => 1,
        'h' | 'H' | 'e' => 2,
        'i' | 'f' => 4,
        'l' | 's' | 'd' | 'u' => 8,
        'L' | 'v' => 16,
        _ => return None,
    })
}

/// Bytes that a scalar of so many bytes has in a register.
fn in_register(letter: char, bytes: u16) -> u16 {
    match letter {
        'B' | 'H' | 'Z' => 4,
        _ => bytes,
    }
}

/// Registers that are given out in order.
struct Free<'a> {
    taken: Vec<u8>,
    lists: [&'a [u8]; 2],
    vectors: u8,
}

impl Free<'_> {
    /// The next register of the C convention's list (0) or of the call's (1).
    fn next(&mut self, list: usize) -> Option<u8> {
        let free = self.lists[list].iter().find(|r| !self.taken.contains(r));
        let register = free.copied()?;
        self.taken.push(register);
        Some(register)
    }

    /// A pair of registers for an integer of 16 bytes; the inner `None`: it goes to the stack.
    fn pair(&mut self, isa: Isa, preserves_nothing: bool) -> Option<Option<[u8; 2]>> {
        if preserves_nothing {
            // The spine passes words. The x86-64 back end has no place for half of an integer.
            return Some(Some([self.next(1)?, self.next(1)?]));
        }
        let list = self.lists[0].iter().copied();
        let mut free: Vec<u8> = list.filter(|r| !self.taken.contains(r)).collect();
        // AArch64 has it in a pair that starts with an even register; the odd one before it is used for nothing.
        if isa == Isa::Aarch64
            && free.first().is_some_and(|r| r % 2 == 1)
            && !lacks!("verify::pair::even")
        {
            self.taken.push(free.remove(0));
        }
        // It is never split. A register of x86-64 that is left goes to a later argument.
        Some(match free[..] {
            [a, b, ..] => {
                self.taken.extend([a, b]);
                Some([a, b])
            }
            _ => None,
        })
    }
}

impl Signature {
    /// The class of calls that may reach the same functions through pointers.
    pub fn class(&self) -> String {
        let letters = |s: &str| {
            let one = |l: char| match l {
                '|' => String::new(),
                'L' => "ll".to_owned(),
                's' if !lacks!("verify::class::sret") => "l".to_owned(),
                'u' => "v".to_owned(),
                'B' | 'H' | 'Z' if !lacks!("verify::class::extended") => match l {
                    'Z' => "b".to_owned(),
                    _ => l.to_ascii_lowercase().to_string(),
                },
                other => other.to_string(),
            };
            s.chars().map(one).collect::<String>()
        };
        format!("{}({})", letters(&self.result), letters(&self.arguments))
    }

    /// Whether it is known where all arguments are, on both ISAs.
    pub fn has_places(&self) -> bool {
        Isa::ALL.iter().all(|isa| self.arguments(*isa).is_some())
    }

    /// Where the arguments are. `None`: that is not known.
    pub(super) fn arguments(&self, isa: Isa) -> Option<Vec<Place>> {
        let i = isa.index();
        let own = if self.preserves_nothing {
            NONE[i]
        } else {
            C[i]
        };
        let mut free = Free {
            taken: Vec::new(),
            lists: [C[i], own],
            vectors: 0,
        };
        let mut stack = 0i64;
        let mut out = Vec::new();
        let mut aggregate = false;
        for letter in self.arguments.chars() {
            if letter == '|' {
                aggregate = !aggregate;
                continue;
            }
            let size = bytes(letter)?;
            let register = match letter {
                'b' | 'h' | 'B' | 'H' | 'Z' => {
                    let bytes = in_register(letter, size);
                    free.next(0).map(|r| Lanes::general(r, bytes))
                }
                's' if isa == Isa::Aarch64 && !self.preserves_nothing => {
                    Some(Lanes::general(INDIRECT, size))
                }
                'i' | 'l' | 's' => free.next(1).map(|r| Lanes::general(r, size)),
                'L' => free.pair(isa, self.preserves_nothing)?.map(Lanes::generals),
                _ if free.vectors < VECTORS => {
                    free.vectors += 1;
                    Some(Lanes::vector(free.vectors - 1, size))
                }
                _ => None,
            };
            out.push(match register {
                Some(lanes) => Place::Lanes(lanes),
                // Aggregates have rules of their own there.
                None if aggregate || letter == 'u' => return None,
                None => {
                    let slot = i64::from(size.max(8));
                    stack = (stack + slot - 1) / slot * slot;
                    stack += slot;
                    Place::Stack(stack - slot, size)
                }
            });
        }
        Some(out)
    }

    /// Where the result is. `None`: that is not known.
    pub(super) fn results(&self, isa: Isa) -> Option<Lanes> {
        let i = isa.index();
        let mut general = RESULTS[i].iter();
        let mut vectors = 0..VECTOR_RESULTS[i];
        let mut out = Lanes::NONE;
        for letter in self.result.chars().filter(|l| *l != '|') {
            let size = bytes(letter)?;
            out = out.or(match letter {
                // A byte is what x86-64 extends a bit to that is given back.
                'Z' if isa == Isa::X86_64 => Lanes::general(*general.next()?, size),
                'b' | 'h' | 'B' | 'H' | 'Z' | 'i' | 'l' => {
                    Lanes::general(*general.next()?, in_register(letter, size))
                }
                'L' => Lanes::generals([*general.next()?, *general.next()?]),
                _ => Lanes::vector(vectors.next()?, size),
            });
        }
        Some(out)
    }
}

/// The signatures of routines of the back ends' own libraries, which the IR does not name.
pub(super) fn of_library(name: &str) -> Option<Signature> {
    let (arguments, result) = match name {
        "memcpy" | "memmove" | "memcmp" | "bcmp" => ("lll", "l"),
        "memset" => ("lil", "l"),
        "__multi3" | "__udivti3" | "__umodti3" | "__divti3" | "__modti3" => ("LL", "L"),
        "__ashlti3" | "__lshrti3" | "__ashrti3" => ("Li", "L"),
        "fmod" | "fmin" | "fmax" | "pow" => ("dd", "d"),
        "fmodf" | "fminf" | "fmaxf" | "powf" => ("ff", "f"),
        "fma" => ("ddd", "d"),
        "fmaf" => ("fff", "f"),
        "floor" | "ceil" | "trunc" | "rint" | "round" | "roundeven" | "nearbyint" | "sqrt" => {
            ("d", "d")
        }
        "floorf" | "ceilf" | "truncf" | "rintf" | "roundf" | "roundevenf" | "nearbyintf"
        | "sqrtf" => ("f", "f"),
        "__floattidf" | "__floatuntidf" => ("L", "d"),
        "__floattisf" | "__floatuntisf" => ("L", "f"),
        "__fixdfti" | "__fixunsdfti" => ("d", "L"),
        "__fixsfti" | "__fixunssfti" => ("f", "L"),
        _ => return None,
    };
    Some(Signature {
        preserves_nothing: false,
        arguments: arguments.to_owned(),
        result: result.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::lanes::Owner;
    use super::*;

    fn places(isa: Isa, none: bool, arguments: &str) -> Option<Vec<Place>> {
        let signature = Signature {
            preserves_nothing: none,
            arguments: arguments.to_owned(),
            result: String::new(),
        };
        signature.arguments(isa)
    }

    #[test]
    fn a_bit_is_given_back_as_a_byte_on_one_isa() {
        let result = |isa, letters: &str| {
            let signature = Signature {
                preserves_nothing: true,
                arguments: String::new(),
                result: letters.to_owned(),
            };
            signature.results(isa).unwrap()
        };
        let [x, a] = Isa::ALL;
        assert_eq!(result(x, "Z"), Lanes::general(0, 1));
        assert_eq!(result(a, "Z"), Lanes::general(0, 4));
        for isa in Isa::ALL {
            assert_eq!(result(isa, "B"), Lanes::general(0, 4));
            assert_eq!(result(isa, "b"), Lanes::general(0, 1));
        }
    }

    /// Numbers of a back end's names of registers: general-purpose ones, then vectors from 32.
    fn register(isa: Isa, name: &str) -> u8 {
        const OLD: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
        let bare = name.trim_start_matches(|c: char| c.is_alphabetic());
        let digits = bare.trim_end_matches(|c: char| c.is_alphabetic());
        let number = digits.parse::<u8>();
        if let Some(old) = OLD.iter().position(|o| name.ends_with(o)) {
            return old as u8;
        }
        let general = match isa {
            Isa::X86_64 => name.starts_with('r'),
            Isa::Aarch64 => name.starts_with(['x', 'w']),
        };
        number.unwrap() + if general { 0 } else { 32 }
    }

    /// A module with a function for each list of arguments.
    fn module(isa: Isa, convention: &str, lists: &[String]) -> String {
        let layout = [
            "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
            "e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32",
        ][isa.index()];
        let triple = ["x86_64-unknown-none-elf", "aarch64-unknown-none"][isa.index()];
        let mut text = format!("target datalayout = \"{layout}\"\ntarget triple = \"{triple}\"\n");
        for (n, list) in lists.iter().enumerate() {
            let ty = |l| match l {
                'b' => "i8",
                'h' => "i16",
                'i' => "i32",
                'l' => "i64",
                'L' => "i128",
                'f' => "float",
                'd' => "double",
                _ => "<2 x double>",
            };
            let arguments: Vec<_> = list.chars().map(ty).collect();
            let takes = arguments.join(", ");
            text.push_str(&format!("define {convention} void @f{n}({takes}) {{\n"));
            for (n, ty) in arguments.iter().enumerate() {
                text.push_str(&format!("  store volatile {ty} %{n}, ptr null\n"));
            }
            text.push_str("  ret void\n}\n");
        }
        text
    }

    /// Registers, and bytes of the stack, of a function's arguments.
    type Found = (Vec<u8>, Vec<(i64, u16)>);

    /// Registers and bytes of the stack of each function's arguments, as a back end has them: in its order.
    fn of_back_end(isa: Isa, module: &str) -> Vec<Found> {
        let workspace = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let tools = crate::toolchain::Toolchain::find(workspace).unwrap();
        let mut llc = std::process::Command::new(&tools.llc);
        let flags = crate::codegen::flags(isa).filter(|f| !f.starts_with("-filetype"));
        llc.args(flags)
            .args(["-stop-after=finalize-isel", "-o", "-"]);
        let pipe = || std::process::Stdio::piped();
        let mut run = llc.stdin(pipe()).stdout(pipe()).spawn().unwrap();
        let mut input = run.stdin.take().unwrap();
        let text = module.to_owned();
        let write = std::thread::spawn(move || {
            std::io::Write::write_all(&mut input, text.as_bytes()).unwrap();
        });
        let out = run.wait_with_output().unwrap();
        write.join().unwrap();
        assert!(out.status.success());
        let text = String::from_utf8(out.stdout).unwrap();
        let behind = |line: &str, what: &str| -> String {
            let rest = line.split_once(what).unwrap().1;
            rest.chars().take_while(|c| !" ,\'".contains(*c)).collect()
        };
        let functions = text.split("\nname: ").skip(1).map(|function| {
            let head = function.split("\nbody:").next().unwrap();
            let registers = head.lines().filter(|l| l.contains("- { reg: '$"));
            let stack = head.lines().filter(|l| l.contains("offset: "));
            (
                registers
                    .map(|l| register(isa, &behind(l, "reg: '$")))
                    .collect(),
                stack
                    .map(|l| {
                        let number = |what| behind(l, what).parse::<i64>().unwrap();
                        (number("offset: "), number("size: ") as u16)
                    })
                    .collect(),
            )
        });
        functions.collect()
    }

    /// Random lists of arguments, integers of 128 bits among them, are where the back ends have them.
    #[test]
    fn random_arguments_are_where_the_back_ends_have_them() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            (seed >> 33) % n
        };
        for isa in Isa::ALL {
            for (none, convention, letters) in [
                (false, "", "bhilLLLfdv"),
                (true, "preserve_nonecc", "bhilllfdv"),
            ] {
                let mut list = || -> String {
                    let one = |_| letters.chars().nth(below(letters.len() as u64) as usize);
                    (0..30).filter_map(one).collect()
                };
                let long: Vec<String> = (0..60).map(|_| list()).collect();
                // Every number of registers before an integer of 128 bits, and something behind it.
                let plain = (0..30).map(|n| "l".repeat(n));
                let short = plain.map(|p| if none { p + "lbl" } else { p + "LlLb" });
                let lists: Vec<String> = long.into_iter().chain(short).collect();
                let found = of_back_end(isa, &module(isa, convention, &lists));
                assert_eq!(found.len(), lists.len());
                for (list, (mut registers, mut stack)) in lists.iter().zip(found) {
                    let (mut own, mut own_stack) = (Vec::new(), Vec::new());
                    for place in places(isa, none, list).unwrap() {
                        match place {
                            Place::Lanes(lanes) => {
                                own.extend(lanes.owners().iter().map(|o| match o {
                                    Owner::General(r) => *r,
                                    Owner::Vector(r) => 32 + r,
                                    Owner::Flags => 0xff,
                                }))
                            }
                            // An integer of 16 bytes is two there.
                            Place::Stack(at, 16) if !stack.contains(&(at, 16)) => {
                                own_stack.extend([(at, 8), (at + 8, 8)]);
                            }
                            Place::Stack(at, n) => own_stack.push((at, n)),
                        }
                    }
                    for all in [&mut registers, &mut own] {
                        all.sort_unstable();
                    }
                    for all in [&mut stack, &mut own_stack] {
                        all.sort_unstable();
                    }
                    assert_eq!(
                        (own, own_stack),
                        (registers, stack),
                        "{isa} {convention} {list}"
                    );
                }
            }
        }
    }

    /// As `llc` has it: `-stop-after=finalize-isel` shows registers and stack offsets of arguments.
    #[test]
    fn arguments_are_where_the_back_ends_have_them() {
        let g = |r, n| Place::Lanes(Lanes::general(r, n));
        let pair = |a, b| Place::Lanes(Lanes::generals([a, b]));
        let v = |r, n| Place::Lanes(Lanes::vector(r, n));
        let [x, a] = Isa::ALL;
        assert_eq!(
            places(x, true, "lLbLl").unwrap(),
            [g(12, 8), pair(13, 14), g(7, 1), pair(15, 6), g(2, 8)]
        );
        assert_eq!(
            places(a, true, "lLbLl").unwrap(),
            [g(20, 8), pair(21, 22), g(0, 1), pair(23, 24), g(25, 8)]
        );
        assert_eq!(
            places(x, false, "lLbLlhd").unwrap(),
            [
                g(7, 8),
                pair(6, 2),
                g(1, 1),
                pair(8, 9),
                Place::Stack(0, 8),
                Place::Stack(8, 2),
                v(0, 8)
            ]
        );
        assert_eq!(
            places(a, false, "lLbLlhd").unwrap(),
            [
                g(0, 8),
                pair(2, 3),
                g(4, 1),
                pair(6, 7),
                Place::Stack(0, 8),
                Place::Stack(8, 2),
                v(0, 8)
            ]
        );
        let on_stack = |isa, none, arguments: &str| {
            let all = places(isa, none, arguments).unwrap();
            let stack = all.iter().filter_map(|p| match p {
                Place::Stack(at, n) => Some((*at, *n)),
                Place::Lanes(_) => None,
            });
            stack.collect::<Vec<_>>()
        };
        let eight = "llllllllbfiLd";
        assert_eq!(
            on_stack(x, false, eight),
            [(0, 8), (8, 8), (16, 1), (24, 4), (32, 16)]
        );
        assert_eq!(on_stack(a, false, eight), [(0, 1), (8, 4), (16, 16)]);
        let floats = "ddddddddddfv";
        for isa in Isa::ALL {
            assert_eq!(
                on_stack(isa, true, floats),
                [(0, 8), (8, 8), (16, 4), (32, 16)]
            );
        }
        let many = "l".repeat(27);
        assert_eq!(on_stack(x, true, &many).len(), 15);
        assert_eq!(on_stack(a, true, &many), [(0, 8), (8, 8), (16, 8)]);
        // What is extended is where it would be otherwise.
        assert_eq!(
            places(a, true, "lBHZ").unwrap(),
            [g(20, 8), g(0, 4), g(1, 4), g(2, 4)]
        );
        assert_eq!(on_stack(x, false, "llllllBH"), [(0, 1), (8, 2)]);
        // The address of a result.
        assert_eq!(places(x, false, "sl").unwrap(), [g(7, 8), g(6, 8)]);
        assert_eq!(places(a, false, "sl").unwrap(), [g(8, 8), g(0, 8)]);
        // An integer of 16 bytes is not split in the C convention.
        let [r9, low] = [g(9, 8), Place::Stack(0, 16)];
        assert_eq!(places(x, false, "lllLL").unwrap()[3..], [pair(1, 8), low]);
        assert_eq!(places(x, false, "lllllLl").unwrap()[5..], [low, r9]);
        let behind = [low, Place::Stack(16, 8)];
        assert_eq!(places(a, false, "lllllllLl").unwrap()[7..], behind);
        // What is in no rule has no places.
        assert_eq!(places(x, true, "lllllllllllL"), None);
        assert_eq!(places(a, false, "lllllll|ll|"), None);
        assert_eq!(places(a, false, "?"), None);
    }
}
