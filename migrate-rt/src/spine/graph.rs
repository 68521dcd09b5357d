//! Which functions can be on the stack of a thread at a migration point.
//!
//! Calls by name are known. A call through a pointer reaches any function whose address is taken
//! somewhere and which takes its arguments and gives its result in the same way: its *class*. Classes
//! are as coarse as the ABI ([`class`](super::types::class)), not as fine as LLVM's types: Rust lets a
//! program call a function through a pointer of another type that is passed alike. A class is affected if
//! one of its functions may migrate; then all functions of the class get the convention of the
//! spine, as the call cannot tell them apart, and all calls of the class get sites.
//!
//! Functions that are entered from outside of the program, but for the root, are never on the spine,
//! whatever they call: nobody there knows of its convention. A thread that passes a point below one of
//! them stays where it is. Functions of one ISA only are not on it either, and no point may be reached from
//! them: their callers may be on the other ISA.

use super::error::SpineError;
use super::inst::{self, Call, Callee, Inst, argument_types};
use super::{KEPT, LEAF, ROOT, is_of_one_isa};
use crate::llvm::{Function, Header, Item, Kind, Lexed, Module, lex};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a function does to others.
struct Facts {
    signature: String,
    /// Functions that it calls by name.
    calls: BTreeSet<String>,
    /// Classes of its calls through pointers.
    classes: BTreeSet<String>,
    internal: bool,
    /// Whether it runs on one ISA only.
    one_isa: bool,
}

/// The functions of the spine.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Functions that are transformed: those that may migrate, and those of affected classes.
    pub spine: BTreeSet<String>,
    /// Affected classes, with the functions in them.
    pub classes: BTreeMap<String, Vec<String>>,
    /// Of affected classes, those that are entered from outside of the program, or from the other ISA.
    pub exported: Vec<String>,
    /// Functions of one ISA only from which a point can be reached.
    pub one_isa: Vec<String>,
    /// Whether something uses the root's address or calls it.
    pub root_used: bool,
}

impl Graph {
    /// Finds the spine of a module.
    ///
    /// # Errors
    ///
    /// If there is a call that cannot be understood.
    pub fn of(module: &Module) -> Result<Graph, SpineError> {
        let mut facts = BTreeMap::new();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut kept: BTreeSet<String> = BTreeSet::new();
        for item in &module.items {
            match item {
                Item::Line(line) if line.starts_with('@') => {
                    let l = lex(line)?;
                    // The first one is the name that is defined.
                    let names = (1..l.tokens.len()).filter(|i| l.kind(*i) == Some(Kind::Global));
                    match l.name(0).contains(KEPT) {
                        true => kept.extend(names.map(|i| l.name(i).to_owned())),
                        false => taken.extend(names.map(|i| l.name(i).to_owned())),
                    }
                }
                Item::Line(_) => {}
                Item::Function(f) => {
                    let found = Facts::of(f, &mut taken).map_err(|e| e.of(&f.name))?;
                    facts.insert(f.name.clone(), found);
                }
            }
        }
        kept.retain(|n| facts.get(n).is_none_or(|f| !f.one_isa));
        taken.append(&mut kept);
        taken.retain(|n| facts.contains_key(n));
        let mut by_class: HashMap<&str, Vec<&String>> = HashMap::new();
        for name in &taken {
            by_class
                .entry(&facts[name].signature)
                .or_default()
                .push(name);
        }
        // What may migrate, and what only shares a class with it.
        let mut moving: BTreeSet<&str> = BTreeSet::from([LEAF]);
        let mut classes: BTreeSet<&str> = BTreeSet::new();
        let mut one_isa: BTreeSet<&str> = BTreeSet::new();
        loop {
            let before = (moving.len(), classes.len());
            for (name, f) in &facts {
                let reaches = f.calls.iter().any(|c| moving.contains(c.as_str()))
                    || f.classes.iter().any(|c| classes.contains(c.as_str()));
                // What is entered from outside, or from the other ISA, stays as it is, whatever it calls.
                let outside = !f.internal && name != ROOT || f.one_isa;
                if reaches && f.one_isa {
                    one_isa.insert(name);
                }
                if reaches && !outside && moving.insert(name) && taken.contains(name) {
                    classes.insert(&f.signature);
                }
            }
            if before == (moving.len(), classes.len()) {
                break;
            }
        }
        let classes: BTreeMap<String, Vec<String>> = classes
            .into_iter()
            .map(|c| {
                let members = by_class.get(c).into_iter().flatten();
                (c.to_owned(), members.map(|n| n.to_string()).collect())
            })
            .collect();
        let mut spine: BTreeSet<String> = moving.iter().map(|n| n.to_string()).collect();
        spine.remove(LEAF);
        spine.extend(classes.values().flatten().cloned());
        if facts.contains_key(ROOT) {
            spine.insert(ROOT.to_owned());
        }
        let shared = |n: &&String| *n != ROOT && (!facts[*n].internal || facts[*n].one_isa);
        let exported = spine.iter().filter(shared).cloned().collect();
        let root_used = taken.contains(ROOT) || facts.values().any(|f| f.calls.contains(ROOT));
        Ok(Graph {
            spine,
            classes,
            exported,
            one_isa: one_isa.into_iter().map(str::to_owned).collect(),
            root_used,
        })
    }

    /// Whether a function of the spine can be reached through a pointer.
    pub fn is_shared(&self, name: &str) -> bool {
        let has = |members: &Vec<String>| members.iter().any(|n| n == name);
        self.classes.values().any(has)
    }

    /// Whether a call has the convention of the spine.
    pub fn is_spine_call(&self, call: &Call) -> bool {
        match &call.callee {
            Callee::Named(name) => name == LEAF || self.spine.contains(name),
            Callee::Pointer => self.classes.contains_key(&call.signature),
            Callee::Asm => false,
        }
    }

    /// Spine functions that a call through a pointer can reach.
    pub fn targets(&self, call: &Call) -> Vec<String> {
        match call.callee {
            Callee::Pointer => self
                .classes
                .get(&call.signature)
                .cloned()
                .unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

impl Facts {
    fn of(f: &Function, taken: &mut BTreeSet<String>) -> Result<Facts, SpineError> {
        let header = lex(&f.header)?;
        let signature = signature(&header).ok_or_else(|| SpineError::unreadable("", &f.header))?;
        let mut facts = Facts {
            signature,
            calls: BTreeSet::new(),
            classes: BTreeSet::new(),
            internal: f.is_internal(),
            one_isa: is_of_one_isa(&f.header),
        };
        for inst in f.insts() {
            let l = lex(inst)?;
            let mut direct = None;
            if let Inst::Call(call) = Inst::read(&l)? {
                match call.callee {
                    Callee::Named(name) => {
                        facts.calls.insert(name);
                        direct = Some(call.callee_at);
                    }
                    Callee::Pointer => drop(facts.classes.insert(call.signature)),
                    Callee::Asm => {}
                }
            }
            let names = (0..l.tokens.len())
                .filter(|i| l.kind(*i) == Some(Kind::Global) && Some(*i) != direct);
            taken.extend(names.map(|i| l.name(i).to_owned()));
        }
        Ok(facts)
    }
}

/// The class in a function's header.
fn signature(l: &Lexed<'_>) -> Option<String> {
    let h = Header::read(l)?;
    let (types, _) = argument_types(l, h.parameters)?;
    Some(inst::signature(l, h.result, &types))
}
