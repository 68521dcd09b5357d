//! What the verifier is told about a program.

use super::abi::Conventions;
use super::finding::{Finding, Kind};
use dyad_abi::Isa;
use std::collections::{BTreeMap, BTreeSet};

/// A call behind which a thread may have changed its ISA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteAt {
    /// Number of the site; the same on both ISAs.
    pub id: u64,
    /// Symbol of the function that makes the call.
    pub function: String,
    /// The call's return address.
    pub ret: u64,
    /// Size of the frame in bytes, as the stack map says: on x86-64 without the return address, so
    /// that the stack pointer before the call is CFA - 8 - `frame`; on AArch64 all of it, so that it
    /// is CFA - `frame`. The CFA is the stack pointer before the caller's call of this function.
    pub frame: u64,
    /// For a call through a pointer: symbols of the spine functions that it can reach. Empty if
    /// unknown: any spine function then. Calls by name do not need it.
    pub targets: Vec<String>,
}

/// The part of a program that can be on the stack at a migration point, on one ISA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpineInfo {
    /// Symbols of the functions that are transformed. Each is verified.
    pub functions: Vec<String>,
    /// Symbols of per-ISA routines that may migrate their caller, such as the one that leaves for the
    /// other ISA. They are not verified, but every call of them has to be a site.
    pub leaves: Vec<String>,
    /// The sites in the functions.
    pub sites: Vec<SiteAt>,
    /// Of plain calls through pointers, by return address: the numbers under which their conventions are known. A call that
    /// is not here may be of any plain kind that its function has.
    pub plain: BTreeMap<u64, BTreeSet<u64>>,
    /// What the IR says of calls. Without it, which of the registers have a meaning at a call is not known:
    /// what was copied into one has.
    pub conventions: Option<Conventions>,
}

/// Compares the sites of the two ISAs, x86-64 first: each number has to appear on both, in the same
/// function.
pub fn same_sites(spines: [&SpineInfo; 2]) -> Vec<Finding> {
    let functions = spines.map(|spine| {
        let sites = spine.sites.iter();
        sites
            .map(|s| (s.id, s.function.as_str()))
            .collect::<BTreeMap<_, _>>()
    });
    let ids: BTreeSet<u64> = functions.iter().flat_map(|f| f.keys().copied()).collect();
    let finding = |isa: Isa, function: &str, detail: String| Finding {
        isa,
        kind: Kind::SiteOnOneIsa,
        function: crate::demangle(function),
        va: 0,
        instruction: String::new(),
        source: None,
        detail,
    };
    let mut found = Vec::new();
    for id in ids {
        let [x, a] = [0, 1].map(|i: usize| functions[i].get(&id));
        match (x, a) {
            (Some(x), Some(a)) if x != a => {
                let other = crate::demangle(a);
                let detail = format!("site {id} is in {other} on {}", Isa::Aarch64);
                found.push(finding(Isa::X86_64, x, detail));
            }
            (Some(_), Some(_)) | (None, None) => {}
            (Some(f), None) => found.push(finding(
                Isa::X86_64,
                f,
                format!("site {id} does not exist on {}", Isa::Aarch64),
            )),
            (None, Some(f)) => found.push(finding(
                Isa::Aarch64,
                f,
                format!("site {id} does not exist on {}", Isa::X86_64),
            )),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spine(sites: &[(u64, &str)]) -> SpineInfo {
        SpineInfo {
            sites: sites
                .iter()
                .map(|(id, function)| SiteAt {
                    id: *id,
                    function: function.to_string(),
                    ret: 0x4100_0000 + id,
                    frame: 24,
                    targets: Vec::new(),
                })
                .collect(),
            ..SpineInfo::default()
        }
    }

    #[test]
    fn sites_of_one_isa_are_found() {
        let both = spine(&[(1, "f"), (2, "g")]);
        assert!(same_sites([&both, &both]).is_empty());
        let found = same_sites([&both, &spine(&[(1, "g"), (3, "g")])]);
        let seen: Vec<_> = found
            .iter()
            .map(|f| (f.isa, f.kind, f.function.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (Isa::X86_64, Kind::SiteOnOneIsa, "f"),
                (Isa::X86_64, Kind::SiteOnOneIsa, "g"),
                (Isa::Aarch64, Kind::SiteOnOneIsa, "g"),
            ]
        );
    }
}
