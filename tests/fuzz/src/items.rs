//! The items of a program: types, a trait with its implementors, generics, functions.

use std::fmt::Write as _;

use crate::body::{Body, Items};
use crate::types::{Def, Sig, Ty};
use crate::{Random, Size};

/// A program: the contents of a module with a function `run`.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its text.
    pub text: String,
    /// The kinds of its statements, a bit for each of [`KINDS`](crate::body::KINDS).
    pub kinds: u32,
}

/// The program of a seed.
pub fn program(seed: u64, size: Size) -> Program {
    let mut random = Random::of(seed);
    let r = &mut random;
    let mut items = Items::default();
    let mut out = String::new();
    for n in 0..2 + r.below(2) {
        let def = Def::any(r, &items.defs);
        define(&mut out, n, &def);
        items.defs.push(def);
    }
    for _ in 0..1 + r.below(2) {
        let sig = Sig::any(r, &items.defs);
        items.methods.push(sig);
    }
    items.objects = 2;
    items.generics = r.below(2);
    for _ in 0..size.functions {
        // One of two has the types of one before, so that tables have several.
        let sig = match items.functions.len() {
            n if n > 0 && r.below(2) == 0 => items.functions[r.below(n)].clone(),
            _ => Sig::any(r, &items.defs),
        };
        items.functions.push(sig);
    }
    let mut kinds = 0;
    for (n, sig) in items.functions.iter().enumerate() {
        let loops = r.below(5) == 0;
        let (body, used) = Body::new(r, &items, sig, 2, loops).write(sig, size.statements);
        kinds |= used;
        let attribute = if loops { "#[points_in_loops]\n" } else { "" };
        let _ = write!(
            out,
            "{attribute}#[inline(never)]\npub fn f{n}({}) -> {} {{\n{body}}}\n",
            sig.parameters(),
            sig.result.text()
        );
    }
    for n in 0..items.generics {
        kinds |= generic(&mut out, r, &items, n);
    }
    kinds |= objects(&mut out, r, &items);
    run(&mut out, r, &items, seed);
    Program { text: out, kinds }
}

fn define(out: &mut String, n: usize, def: &Def) {
    let list = |all: &[Ty], f: &dyn Fn(usize, &Ty) -> String| -> String {
        let each: Vec<String> = all.iter().enumerate().map(|(i, t)| f(i, t)).collect();
        each.join(", ")
    };
    let text = |_: usize, t: &Ty| t.text();
    let made = |i: usize, t: &Ty| format!("<{}>::make(mix(n, {i}))", t.text());
    let _ = writeln!(out, "#[derive(Clone, Copy)]");
    match def {
        Def::Struct(fields) => {
            let hashed = list(fields, &|i, _| format!("self.{i}.h()"));
            let _ = write!(
                out,
                "pub struct T{n}({});\nimpl Val for T{n} {{\n    #[inline(never)]\n    fn make(n: u64) -> Self {{ T{n}({}) }}\n    #[inline(never)]\n    \
                 fn h(&self) -> u64 {{ let all: [u64; {}] = [{hashed}]; all.iter().fold({n}, |h, v| mix(h, *v)) }}\n}}\n",
                list(fields, &text),
                list(fields, &made),
                fields.len()
            );
        }
        Def::Enum(variants) => {
            let (mut all, mut makes, mut hashes) = (String::new(), String::new(), String::new());
            for (v, fields) in variants.iter().enumerate() {
                let (types, values, names) = match fields.is_empty() {
                    true => Default::default(),
                    false => (
                        format!("({})", list(fields, &text)),
                        format!("({})", list(fields, &made)),
                        format!("({})", list(fields, &|i, _| format!("v{i}"))),
                    ),
                };
                let _ = write!(all, "V{v}{types}, ");
                let head = if v + 1 == variants.len() {
                    "_".to_owned()
                } else {
                    v.to_string()
                };
                let _ = write!(makes, "{head} => T{n}::V{v}{values}, ");
                let hash =
                    (0..fields.len()).fold(format!("{v}"), |h, i| format!("mix({h}, v{i}.h())"));
                let _ = write!(hashes, "T{n}::V{v}{names} => {hash}, ");
            }
            let _ = write!(
                out,
                "pub enum T{n} {{ {all}}}\nimpl Val for T{n} {{\n    #[inline(never)]\n    fn make(n: u64) -> Self {{ match mix(n, 50) >> 20 & 3 {{ {makes}}} }}\n    #[inline(never)]\n    \
                 fn h(&self) -> u64 {{ match *self {{ {hashes}}} }}\n}}\n"
            );
        }
    }
}

/// A generic function, which gives what depends on both of its values.
fn generic(out: &mut String, r: &mut Random, items: &Items, n: usize) -> u32 {
    let sig = Sig {
        args: Vec::new(),
        result: Ty::any(r, &items.defs, 12),
    };
    let (body, kinds) = Body::new(r, items, &sig, 1, false).write(&sig, 1);
    let _ = write!(
        out,
        "#[inline(never)]\npub fn g{n}<A: Val, B: Val>(a: A, b: B, depth: u32) -> (B, A, u64) {{\n    \
         let own = |depth: u32| -> {} {{\n{body}    }};\n    point();\n    let value = own(depth).h();\n    point();\n    \
         (b, a, mix(value, mix(b.h(), a.h())))\n}}\n",
        sig.result.text()
    );
    kinds
}

/// A trait, and types with it.
fn objects(out: &mut String, r: &mut Random, items: &Items) -> u32 {
    let mut kinds = 0;
    out.push_str("pub trait Object {\n    fn h(&self) -> u64;\n");
    for (m, sig) in items.methods.iter().enumerate() {
        let _ = writeln!(
            out,
            "    fn m{m}(&mut self, {}) -> {};",
            sig.parameters(),
            sig.result.text()
        );
    }
    out.push_str("}\n");
    for n in 0..items.objects {
        let fields: Vec<Ty> = (0..r.below(4))
            .map(|_| Ty::any(r, &items.defs, 6))
            .collect();
        let list = |f: &dyn Fn(usize, &Ty) -> String| -> String {
            fields
                .iter()
                .enumerate()
                .map(|(i, t)| f(i, t) + ", ")
                .collect()
        };
        let _ = write!(
            out,
            "pub struct O{n} {{ {}log: Vec<u64> }}\nimpl O{n} {{\n    fn make(n: u64) -> Self {{ O{n} {{ {}log: Vec::new() }} }}\n}}\n\
             impl Object for O{n} {{\n    fn h(&self) -> u64 {{ let all: Vec<u64> = [{}].to_vec(); all.iter().chain(&self.log).fold({n}, |h, v| mix(h, *v)) }}\n",
            list(&|i, t| format!("x{i}: {}", t.text())),
            list(&|i, t| format!("x{i}: <{}>::make(mix(n, {i}))", t.text())),
            list(&|i, _| format!("self.x{i}.h()")),
        );
        for (m, sig) in items.methods.iter().enumerate() {
            let (body, used) = Body::new(r, items, sig, 1, false).write(sig, 1);
            kinds |= used;
            let change = match fields.is_empty() {
                true => String::new(),
                false => {
                    let i = r.below(fields.len());
                    format!(
                        "    self.x{i} = <{}>::make(depth as u64);\n",
                        fields[i].text()
                    )
                }
            };
            let _ = write!(
                out,
                "    #[inline(never)]\n    fn m{m}(&mut self, {}) -> {} {{\n    self.log.push({m});\n    point();\n{change}{body}    }}\n",
                sig.parameters(),
                sig.result.text()
            );
        }
        out.push_str("}\n");
    }
    kinds
}

/// Calls every function with arguments of its own.
fn run(out: &mut String, r: &mut Random, items: &Items, seed: u64) {
    let _ = writeln!(
        out,
        "#[inline(never)]\npub fn run(trail: &mut Trail) {{\n    let mut acc = black_box({seed}u64);\n    let depth = black_box(3u32);"
    );
    for n in 0..items.functions.len() {
        let all = Body::only_call(r, items, n);
        let _ = writeln!(out, "{all}    trail.note(acc);");
    }
    out.push_str("}\n");
}
