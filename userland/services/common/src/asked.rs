//! What init's process service is asked, and by whom: which requests are the pager's or a peer's alone.
//!
//! The badge names the program that has been given the capability. The thread id in the token names the program
//! whose thread it is. A program can choose neither; it can choose all words.

use dyad_abi::service::{peer, process, program, thread_of_id};
use dyad_abi::{Error, NodeId, Result};

/// A request that the caller may make, as far as that can be told by badge, token and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A thread is to go on elsewhere, interpreted.
    Emulate,
    /// The scheduler's table is to be changed.
    Change,
    /// Faults of a program find no memory: on this node, or on another one.
    Memory {
        /// The program.
        program: u64,
        /// Where; `None`: here.
        node: Option<NodeId>,
    },
    /// What the block allocator knows.
    MemoryState,
    /// A thread of a program has made an error.
    Faulted {
        /// The program.
        program: u64,
        /// The kind; never 0.
        kind: u64,
    },
    /// Threads of a group are lost.
    Lost {
        /// The program.
        program: u64,
        /// The threads, by bit.
        threads: u64,
    },
    /// A request about threads of the caller's program, or none that there is.
    Threads,
}

/// What the words of an invocation ask.
///
/// # Errors
///
/// `Denied` if only the pager, or only a peer, may ask that; `NoSuchNode`.
pub fn asked(badge: u64, words: [u64; 4]) -> Result<Asked> {
    let what = words[0];
    if what == process::EMULATE {
        return Ok(Asked::Emulate);
    }
    if what == process::REQUEST {
        return Ok(Asked::Change);
    }
    if what == process::MEMORY_STATE {
        return Ok(Asked::MemoryState);
    }
    if what == process::LOST {
        let Speaks { process, ends } = Speaks::of(badge);
        return match process == badge {
            true => Err(Error::Denied),
            false => Ok(Asked::Lost {
                program: ends,
                threads: words[1],
            }),
        };
    }
    // Operands are in the upper bits of these, and are nothing to who may not ask.
    let about = what >> 8 & 0xff;
    let speaks = Speaks::of(badge);
    let of_own = what & 0xff == process::FAULTED && about == speaks.process && about != badge;
    match what & 0xff {
        process::MEMORY | process::FAULTED if badge != program::PAGER && !of_own => {
            return Err(Error::Denied);
        }
        _ => {}
    }
    let named = match what & 0xff {
        process::MEMORY => Asked::Memory {
            program: what >> 8 & 0xff,
            node: match what >> 16 & 0xf {
                0 => None,
                n => Some(NodeId::new(n - 1).ok_or(Error::NoSuchNode)?),
            },
        },
        process::FAULTED => Asked::Faulted {
            program: what >> 8 & 0xff,
            kind: match what >> 16 & process::FAULT_KIND {
                kind if kind & 0xff == 0 => kind | 1,
                kind => kind,
            },
        },
        _ => return Ok(Asked::Threads),
    };
    match named {
        // A peer says it of its process alone. It is an error of the whole group.
        Asked::Faulted { kind, .. } if of_own => Ok(Asked::Faulted {
            program: speaks.ends,
            kind,
        }),
        named => Ok(named),
    }
}

/// Whose threads a capability with a badge speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaks {
    /// The program whose threads invoke init by it.
    pub process: u64,
    /// The program that ends if one of them ends it.
    pub ends: u64,
}

impl Speaks {
    /// Of a peer, its process, which ends its group; of all others, the program itself.
    pub const fn of(badge: u64) -> Speaks {
        if badge >= program::PEER
            && let Some(node) = peer::node_of(badge)
        {
            return Speaks {
                process: peer::process_on(node),
                ends: program::FIRST,
            };
        }
        Speaks {
            process: badge,
            ends: badge,
        }
    }
}

/// The number of the calling thread in its program.
///
/// # Errors
///
/// `Denied` if it is not a thread of the program that the badge names.
pub fn caller(badge: u64, token: u64) -> Result<u64> {
    match thread_of_id(token >> 8) {
        (number, n) if number == badge => Ok(n),
        _ => Err(Error::Denied),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::service::thread_id;
    use dyad_abi::user::MAX_PROGRAM_THREADS;

    #[test]
    fn only_peers_name_lost_threads() {
        for badge in 0..program::MAX + 2 {
            let said = asked(badge, [process::LOST, 5, 0, 0]);
            let is_peer = Speaks::of(badge).process != badge;
            let (program, threads) = (program::FIRST, 5);
            match is_peer {
                true => assert_eq!(said, Ok(Asked::Lost { program, threads })),
                false => assert_eq!(said, Err(Error::Denied)),
            }
        }
    }

    #[test]
    fn only_the_pager_speaks_for_others() {
        for badge in 0..program::MAX + 2 {
            for victim in 0..program::MAX {
                for node in [0, 1, 2, 9, 15] {
                    let memory = process::MEMORY | victim << 8 | node << 16;
                    let faulted = process::FAULTED | victim << 8 | node << 16;
                    for what in [memory, faulted] {
                        let is = asked(badge, [what, 1, 2, 3]);
                        let own = Speaks::of(badge);
                        let peer = own.process != badge && what == faulted && victim == own.process;
                        let may = badge == program::PAGER || peer;
                        // What the words say is looked at for those who may ask only.
                        assert_eq!(is != Err(Error::Denied), may, "{badge}: {what:#x}");
                    }
                }
            }
            // All programs may ask these.
            for (what, is) in [
                (process::EXIT, Asked::Threads),
                (process::START, Asked::Threads),
                (process::END_THREAD, Asked::Threads),
                (process::EMULATE, Asked::Emulate),
                (process::REQUEST, Asked::Change),
                (process::MEMORY_STATE, Asked::MemoryState),
            ] {
                assert_eq!(asked(badge, [what, 0, 0, 0]), Ok(is));
            }
        }
    }

    #[test]
    fn operands_are_what_the_pager_has_said() {
        let say = |what: u64| asked(program::PAGER, [what, 0, 0, 0]);
        let program = 9u64;
        let memory = |node: u64| say(process::MEMORY | program << 8 | node << 16);
        assert_eq!(
            memory(0),
            Ok(Asked::Memory {
                program,
                node: None
            })
        );
        let node = NodeId::new(1);
        assert_eq!(memory(2), Ok(Asked::Memory { program, node }));
        assert_eq!(memory(15), Err(Error::NoSuchNode));
        let faulted = |kind: u64| say(process::FAULTED | program << 8 | kind << 16);
        for (kind, is) in [
            (0, 1),
            (2, 2),
            (0x100, 0x101),
            (process::FAULT_KIND, 0xff_ffff),
        ] {
            assert_eq!(faulted(kind), Ok(Asked::Faulted { program, kind: is }));
        }
    }

    #[test]
    fn peers_speak_for_their_process_and_end_its_group() {
        for badge in 0..program::MAX + 2 {
            let (process, ends) = match badge.checked_sub(program::PEER) {
                Some(n) if n < 8 => (program::FIRST + n, program::FIRST),
                _ => (badge, badge),
            };
            assert_eq!(Speaks::of(badge), Speaks { process, ends });
        }
        let faulted = process::FAULTED | (program::FIRST + 1) << 8 | 2 << 16;
        assert_eq!(
            asked(program::PEER + 1, [faulted, 0, 0, 0]),
            Ok(Asked::Faulted {
                program: program::FIRST,
                kind: 2
            })
        );
    }

    #[test]
    fn threads_speak_for_their_own_program_only() {
        for number in [program::FIRST, program::FIRST + 1] {
            for n in [0, 1, MAX_PROGRAM_THREADS - 1] {
                let token = u64::from(thread_id(number, n)) << 8 | 3;
                for badge in 0..program::MAX {
                    let is = caller(badge, token);
                    assert_eq!(
                        is,
                        if badge == number {
                            Ok(n)
                        } else {
                            Err(Error::Denied)
                        }
                    );
                }
            }
        }
    }
}
