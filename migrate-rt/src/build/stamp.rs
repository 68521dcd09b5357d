//! What results were made from, and what was found out when they were made.

use crate::align::Plan;
use crate::bundle::Packed;
use crate::files::content_hash;
use crate::toolchain::Toolchain;
use crate::verify::Coverage;
use dyad_abi::ABI_VERSION;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// Facts about a program, from the build that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Functions at the same address on every ISA.
    pub functions: u64,
    /// Symbols that were found at the same address on every ISA.
    pub equal_symbols: u64,
    /// Shared bytes that were found equal on every ISA.
    pub equal_bytes: u64,
    /// Shared bytes that start as zeros.
    pub zero_bytes: u64,
    /// Code bytes without padding, by ISA index.
    pub code_bytes: [u64; 2],
    /// Code bytes with padding, the same on every ISA.
    pub aligned_code_bytes: u64,
    /// Size of the bundle.
    pub bundle_bytes: u64,
    /// Sizes of the programs with symbols and line tables, by ISA index.
    pub elf_bytes: [u64; 2],
    /// Functions that can be on the stack at a migration point; 0 if threads do not migrate.
    pub spine_functions: u64,
    /// Calls in them behind which a thread may have changed its ISA.
    pub sites: u64,
    /// Instructions in them that were verified, by ISA index.
    pub verified: [u64; 2],
}

impl Figures {
    pub(super) fn of(plan: &Plan, packed: &Packed, programs: &[Vec<u8>; 2]) -> Figures {
        Figures {
            functions: plan.text.len() as u64,
            equal_symbols: packed.equal_symbols as u64,
            equal_bytes: packed.equal_bytes,
            zero_bytes: plan.shared_bytes().1,
            code_bytes: plan.code_bytes,
            aligned_code_bytes: plan.text_end - dyad_abi::user::TEXT_BASE,
            bundle_bytes: packed.bytes.len() as u64,
            elf_bytes: [programs[0].len() as u64, programs[1].len() as u64],
            ..Figures::default()
        }
    }

    pub(super) fn with_spine(mut self, [x, a]: [Coverage; 2]) -> Figures {
        self.spine_functions = x.functions as u64;
        self.sites = x.sites as u64;
        self.verified = [x.instructions as u64, a.instructions as u64];
        self
    }

    /// What was verified, if threads migrate: everything, or there would be no program.
    pub fn verified_text(&self) -> Option<String> {
        let [x, a] = self.verified;
        (self.spine_functions > 0).then(|| {
            format!(
                "verified that threads can migrate: {} functions with {} sites, {x} instructions on x86_64 and {a} on \
                 aarch64, 100 % of each",
                self.spine_functions, self.sites
            )
        })
    }

    /// Names and values in stamp order.
    fn fields(&mut self) -> [(&'static str, &mut u64); 14] {
        let [code_x86_64, code_aarch64] = &mut self.code_bytes;
        let [elf_x86_64, elf_aarch64] = &mut self.elf_bytes;
        let [verified_x86_64, verified_aarch64] = &mut self.verified;
        [
            ("functions", &mut self.functions),
            ("equal_symbols", &mut self.equal_symbols),
            ("equal_bytes", &mut self.equal_bytes),
            ("zero_bytes", &mut self.zero_bytes),
            ("code_bytes.x86_64", code_x86_64),
            ("code_bytes.aarch64", code_aarch64),
            ("aligned_code_bytes", &mut self.aligned_code_bytes),
            ("bundle_bytes", &mut self.bundle_bytes),
            ("elf_bytes.x86_64", elf_x86_64),
            ("elf_bytes.aarch64", elf_aarch64),
            ("spine_functions", &mut self.spine_functions),
            ("sites", &mut self.sites),
            ("verified.x86_64", verified_x86_64),
            ("verified.aarch64", verified_aarch64),
        ]
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.clone().fields() {
            writeln!(f, "{name}={value}")?;
        }
        Ok(())
    }
}

/// The stamp file: `name=value` lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Hash of all inputs of the back ends.
    pub key: u64,
    /// Hash of the bundle.
    pub bundle: u64,
    /// Hashes of the programs, by ISA index.
    pub elfs: [u64; 2],
    pub figures: Figures,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp {
            key,
            bundle,
            elfs: [x, a],
            figures,
        } = self;
        write!(
            f,
            "key={key}\nbundle={bundle}\nelf.x86_64={x}\nelf.aarch64={a}\n{figures}"
        )
    }
}

impl Stamp {
    /// The stamp at `path`; none if there is none or if it cannot be understood.
    pub fn read(path: &Path) -> Option<Stamp> {
        Stamp::parse(&std::fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Stamp> {
        let values: HashMap<&str, u64> = text
            .lines()
            .map(|l| {
                let (name, value) = l.split_once('=')?;
                Some((name, value.parse().ok()?))
            })
            .collect::<Option<_>>()?;
        let mut figures = Figures::default();
        for (name, value) in figures.fields() {
            *value = *values.get(name)?;
        }
        Some(Stamp {
            key: *values.get("key")?,
            bundle: *values.get("bundle")?,
            elfs: [*values.get("elf.x86_64")?, *values.get("elf.aarch64")?],
            figures,
        })
    }
}

/// Hash of everything that the results depend on: IR, tools, this pipeline, the ABI, the name.
pub(super) fn key(tools: &Toolchain, name: &str, ir: &[u8]) -> u64 {
    let pipeline = env!("MIGRATE_RT_SOURCE");
    let context = format!("{pipeline}\n{ABI_VERSION}\n{name}\n{}\n", tools.identity);
    let parts = [content_hash(context.as_bytes()), content_hash(ir)];
    content_hash(parts.map(u64::to_le_bytes).as_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_verified_is_told_of_programs_that_migrate() {
        assert_eq!(Figures::default().verified_text(), None);
        let figures = Figures {
            spine_functions: 3,
            sites: 7,
            verified: [40, 50],
            ..Figures::default()
        };
        let text = figures.verified_text().unwrap();
        assert!(text.contains("3 functions with 7 sites, 40 instructions on x86_64 and 50 on"));
        assert!(text.ends_with("100 % of each"));
    }

    #[test]
    fn a_stamp_reads_back_and_a_damaged_one_counts_for_nothing() {
        let stamp = Stamp {
            key: 1,
            bundle: u64::MAX,
            elfs: [3, 4],
            figures: Figures {
                functions: 5,
                elf_bytes: [6, 7],
                ..Figures::default()
            },
        };
        let text = stamp.to_string();
        assert_eq!(Stamp::parse(&text), Some(stamp));
        assert_eq!(Stamp::parse(&text[..text.len() / 2]), None);
        assert_eq!(Stamp::parse(""), None);
    }
}
