//! The functions: each there is for one ISA, and its twin for the other one.

use alloc::vec::Vec;
use core::hint::black_box;

use dyad::Isa;

/// Words that have to be the same after everything.
const CANARIES: usize = 24;

/// A table of functions that take and give a word, of both ISAs.
pub type Step = extern "C" fn(u64) -> u64;

/// Words on a stack whose values depend on where and when they were made.
pub struct Canaries([u64; CANARIES]);

impl Canaries {
    /// New ones.
    #[inline(never)]
    pub fn new(seed: u64) -> Canaries {
        Canaries(core::array::from_fn(|i| {
            (seed + i as u64)
                .wrapping_mul(dyad_random::GOLDEN)
                .rotate_left(i as u32)
        }))
    }

    /// Whether they are as they were made.
    #[inline(never)]
    pub fn live(&self, seed: u64) -> bool {
        self.0 == Canaries::new(seed).0
    }
}

macro_rules! twins {
    ($isa:ident, $other:ident, $here:expr) => {
        /// Functions that run on one ISA only.
        pub mod $isa {
            use super::*;

            /// Nothing.
            #[dyad::isa($isa)]
            pub extern "C" fn null() {
                black_box(());
            }

            /// 1 if it runs where it should, and knows on which node that is.
            #[dyad::isa($isa)]
            pub extern "C" fn is_here() -> u32 {
                let really = dyad::sys::where_am_i().map(|w| w.node);
                (dyad::isa() == $here && really == Ok(dyad::node())).into()
            }

            /// 1 if it runs where it should. Its calls cross whatever the policy is.
            #[dyad::isa($isa, always)]
            pub extern "C" fn always_here() -> u32 {
                (dyad::isa() == $here).into()
            }

            /// What a function says that is called from here.
            #[dyad::isa($isa, always)]
            pub extern "C" fn asks(f: extern "C" fn() -> u32) -> u32 {
                f()
            }

            /// Six integers of which none may be another one.
            #[dyad::isa($isa)]
            pub extern "C" fn six(a: u64, b: u32, c: i64, d: i32, e: usize, f: u64) -> i64 {
                let all = [a as i64, b.into(), c, d.into(), e as i64, f as i64];
                all.iter().fold(7, |sum, &n| sum * 31 + n)
            }

            /// Floating-point numbers between integers.
            #[dyad::isa($isa)]
            pub extern "C" fn mixed(
                a: f64,
                i: u64,
                b: f64,
                c: f32,
                j: &f64,
                d: f64,
                e: f64,
                f: f64,
                g: f64,
                h: f64,
            ) -> f64 {
                let all = [a, b, c.into(), *j, d, e, f, g, h, i as f64];
                all.iter().fold(1.0, |sum, n| sum * 1.5 + n)
            }

            /// Changes what it is given by reference.
            #[dyad::isa($isa)]
            pub extern "C" fn add(to: &mut [u64; 8], what: &u64) -> *const u64 {
                to.iter_mut().for_each(|n| *n += what);
                to.as_ptr()
            }

            /// Ackermann's function, of which each step runs on the other ISA than the one before; how deep
            /// it was at most.
            #[dyad::isa($isa)]
            pub extern "C" fn ackermann(m: u64, n: u64, depth: u64, deepest: &mut u64) -> u64 {
                let canaries = Canaries::new(depth ^ m << 32);
                *deepest = depth.max(*deepest);
                let next = super::$other::ackermann;
                let result = match (m, n) {
                    (0, n) => n + 1,
                    (m, 0) => next(m - 1, 1, depth + 1, deepest),
                    (m, n) => {
                        let inner = next(m, n - 1, depth + 1, deepest);
                        next(m - 1, inner, depth + 1, deepest)
                    }
                };
                match canaries.live(depth ^ m << 32) && dyad::isa() == $here {
                    true => result,
                    false => u64::MAX / 2,
                }
            }

            /// Calls down to a depth, adds up on the way back, with floating-point numbers kept meanwhile.
            #[dyad::isa($isa)]
            pub extern "C" fn dive(depth: u64, x: f64) -> f64 {
                let (a, b, c) = (black_box(x * 2.0), black_box(x + 0.25), black_box(x / 3.0));
                let below = match depth {
                    0 => 0.0,
                    _ => super::$other::dive(depth - 1, x + 1.0),
                };
                a + b + c + below
            }

            /// A step of a table.
            #[dyad::isa($isa)]
            pub extern "C" fn step(n: u64) -> u64 {
                n.wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add($here as u64 + 1)
            }

            /// Applies a table.
            #[dyad::isa($isa)]
            pub extern "C" fn walk(table: &[Step; 6], n: u64) -> u64 {
                table.iter().fold(n, |n, f| f(n))
            }

            /// Prints, sleeps, allocates: services are called from here as from anywhere.
            #[dyad::isa($isa)]
            pub extern "C" fn services(n: u64) -> u64 {
                dyad::println!("on {} with {n}", dyad::isa());
                let now = dyad::sys::now().unwrap_or(0);
                let slept = dyad::sys::sleep_until(now + 1_000_000).is_ok();
                let words: Vec<u64> = (0..n).collect();
                words.iter().sum::<u64>() + u64::from(slept && dyad::isa() == $here)
            }

            /// Has a vector grow, and adds it up.
            #[dyad::isa($isa)]
            pub extern "C" fn grows(v: &mut Vec<u64>, by: u64) -> u64 {
                v.extend(0..by);
                v.iter().sum()
            }

            /// Frees a vector.
            #[dyad::isa($isa)]
            pub extern "C" fn frees(v: &mut Option<Vec<u64>>) {
                drop(v.take());
            }

            /// Waits for a while.
            #[dyad::isa($isa)]
            pub extern "C" fn delay(turns: u64, n: u64) -> u64 {
                for _ in 0..turns {
                    dyad::sys::raw::relax();
                }
                n + 1
            }

            /// Says that it is here, and stays for so many nanoseconds.
            #[dyad::isa($isa)]
            pub extern "C" fn stays(ns: u64) -> u64 {
                dyad::println!("it stays on {}", dyad::isa());
                let now = || dyad::sys::now().unwrap_or(u64::MAX);
                let start = now();
                while now().saturating_sub(start) < ns {
                    dyad::sys::raw::relax();
                }
                0
            }

            /// Makes a crossing call within a crossing call.
            #[dyad::isa($isa)]
            pub extern "C" fn leads_on(ns: u64) -> u64 {
                super::$other::stays(ns) + 1
            }
        }
    };
}

twins!(x86_64, aarch64, Isa::X86_64);
twins!(aarch64, x86_64, Isa::Aarch64);
