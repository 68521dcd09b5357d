//! The same pointers, seen from two nodes: equal addresses, one copy of the data, but for each
//! ISA its own code.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::prelude::task::*;
use dyad::{sys, system};
use npb_kernels::is::{Class, Is};

/// Shared data of the program image.
static VISITS: AtomicU64 = AtomicU64::new(0);

/// A function whose code is looked at.
#[inline(never)]
fn landmark() {
    VISITS.fetch_add(1, Ordering::Relaxed);
}

/// One object as one side sees it.
#[derive(Clone, Copy)]
struct Object {
    name: &'static str,
    address: u64,
    physical: u64,
    is_code: bool,
}

/// What one side sees.
pub struct View {
    isa: Isa,
    node: NodeId,
    objects: Vec<Object>,
    code: [u8; 4],
    visits: u64,
}

impl View {
    /// Looks at everything from here.
    pub fn take(is: &Is) -> Result<View> {
        // Touched first, so that this ISA's page table has them.
        landmark();
        let code = sys::code_bytes(landmark);
        let visits = VISITS.load(Ordering::Relaxed);
        black_box((is.keys()[0], is.ranks()[0], Class::ALL[0]));
        let text: &'static str = black_box(Class::A.name());
        black_box(text.as_bytes()[0]);
        let list = [
            ("keys (heap)", is.keys().as_ptr() as u64, false),
            ("ranks (heap)", is.ranks().as_ptr() as u64, false),
            ("counter (static)", &raw const VISITS as u64, false),
            ("text (constant)", text.as_ptr() as u64, false),
            ("function (code)", landmark as fn() as usize as u64, true),
        ];
        let mut objects = Vec::new();
        for (name, address, is_code) in list {
            let seen = sys::translate(address, isa())?;
            objects.push(Object {
                name,
                address,
                physical: seen.physical,
                is_code,
            });
        }
        Ok(View {
            isa: isa(),
            node: node(),
            objects,
            code,
            visits,
        })
    }

    /// Prints both views side by side and says whether they are as they must be.
    ///
    /// # Errors
    ///
    /// What is not.
    pub fn compare(&self, other: &View, system: &system::System) -> Result<(), String> {
        println!();
        println!("  The same pointers by the page tables of both sides:");
        println!(
            "  {:<17} {:<14} {:<14} {:<14} memory",
            "object",
            "virtual",
            self.title(),
            other.title()
        );
        let mut wrong = Vec::new();
        let multiple = sys::is_multiple();
        for (a, b) in self.objects.iter().zip(&other.objects) {
            let pool = |o: &Object| match system.pool_of(o.physical) {
                Some(pool) => format!("{pool} pool"),
                None => "outside all pools".to_string(),
            };
            let (pool_a, pool_b) = (pool(a), pool(b));
            let memory = if pool_a == pool_b {
                pool_a.clone()
            } else {
                format!("{pool_a} | {pool_b}")
            };
            let hex = |n: u64| format!("{n:#x}");
            println!(
                "  {:<17} {:<14} {:<14} {:<14} {memory}",
                a.name,
                hex(a.address),
                hex(a.physical),
                hex(b.physical),
            );
            let one_copy = a.physical == b.physical;
            if a.address != b.address {
                wrong.push(format!("{}: addresses differ", a.name));
            }
            if multiple {
                // Each kernel has its own, in its own memory.
                if pool_a == pool_b {
                    wrong.push(format!("{}: both in the {pool_a}", a.name));
                }
            } else if a.is_code && self.isa != other.isa {
                if one_copy {
                    wrong.push(format!("{}: one copy for two ISAs", a.name));
                }
            } else if !one_copy {
                wrong.push(format!("{}: two copies", a.name));
            }
            for (object, view) in [(a, self), (b, other)] {
                // Asked from here, both page tables say what each side has seen itself.
                let now = sys::translate(object.address, view.isa).map(|t| t.physical);
                if now != Ok(object.physical) && !multiple {
                    wrong.push(format!("{}: {} table changed", a.name, view.isa));
                }
                if system.pool_of(object.physical).is_none() {
                    wrong.push(format!("{}: outside all pools", a.name));
                }
            }
        }
        let hex = |code: [u8; 4]| code.map(|b| format!("{b:02x}")).join(" ");
        println!(
            "  {:<17} {:<14} {:<14} {:<14}",
            "",
            "its code",
            hex(self.code),
            hex(other.code)
        );
        if (self.code == other.code) != (self.isa == other.isa) {
            wrong.push("function: the code is not that of its ISA".to_string());
        }
        if other.visits != self.visits + 1 {
            wrong.push("counter: not shared".to_string());
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    }

    fn title(&self) -> String {
        format!("{} {}", self.node, self.isa)
    }
}
