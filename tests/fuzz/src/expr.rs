//! Expressions of a type.

use crate::Random;
use crate::types::{Def, INTS, Ty};

/// The variables that can be named at a place of a function.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Names and types.
    pub vars: Vec<(String, Ty)>,
    /// Those of them that can be changed.
    pub mutable: Vec<(String, Ty)>,
}

impl Scope {
    fn of<'a>(&'a self, r: &mut Random, ty: &Ty) -> Option<&'a str> {
        let all: Vec<&str> = (self.vars.iter().filter(|v| v.1 == *ty))
            .map(|v| v.0.as_str())
            .collect();
        (!all.is_empty()).then(|| all[r.below(all.len())])
    }
}

/// Writes expressions.
pub struct Exprs<'a> {
    /// The types of the program.
    pub defs: &'a [Def],
    /// What can be named.
    pub scope: &'a Scope,
}

impl Exprs<'_> {
    /// An expression of a type, whose value depends on `acc` or on variables.
    pub fn of(&self, r: &mut Random, ty: &Ty, depth: u32) -> String {
        if let Some(name) = self.scope.of(r, ty)
            && r.below(3) > 0
        {
            return name.to_owned();
        }
        if depth == 0 {
            return self.made(r, ty);
        }
        match r.below(8) {
            0 => return self.made(r, ty),
            1 => {
                let (c, a, b) = (
                    self.cond(r, depth - 1),
                    self.of(r, ty, depth - 1),
                    self.of(r, ty, depth - 1),
                );
                return format!("(if {c} {{ {a} }} else {{ {b} }})");
            }
            2 => {
                if let Some(text) = self.part(r, ty) {
                    return text;
                }
            }
            _ => {}
        }
        let d = depth - 1;
        match ty {
            Ty::Int(name) => self.int(r, name, d),
            Ty::Bool => self.cond(r, d),
            Ty::Char => {
                let (a, b) = (self.of(r, &Ty::Int("u32"), d), self.of(r, ty, d));
                format!("char::from_u32({a} % 0xd800).unwrap_or({b})")
            }
            Ty::Float(bits) => self.float(r, *bits, d),
            Ty::Named(n) => match &self.defs[*n] {
                Def::Struct(fields) => format!("T{n}({})", self.list(r, fields, d)),
                Def::Enum(variants) => {
                    let v = r.below(variants.len());
                    match variants[v].is_empty() {
                        true => format!("T{n}::V{v}"),
                        false => format!("T{n}::V{v}({})", self.list(r, &variants[v], d)),
                    }
                }
            },
            Ty::Tuple(all) => format!("({})", self.list(r, all, d)),
            Ty::Array(of, count) => format!("[{}]", self.list(r, &vec![(**of).clone(); *count], d)),
            Ty::Opt(of) => match (r.below(4), &**of) {
                (0, Ty::Int(name)) => {
                    let op = ["add", "sub", "mul", "div", "rem"][r.below(5)];
                    let (a, b) = (self.of(r, of, d), self.of(r, of, d));
                    format!("<{name}>::checked_{op}({a}, {b})")
                }
                (1, _) => format!("<{}>::make(acc)", ty.text()),
                (2, _) => format!("Some({}).filter(|v| v.h() & 3 != 1)", self.of(r, of, d)),
                _ => format!("Some({})", self.of(r, of, d)),
            },
            Ty::Res(ok, err) => match r.below(3) {
                0 => format!(
                    "Err::<{}, {}>({})",
                    ok.text(),
                    err.text(),
                    self.of(r, err, d)
                ),
                1 => format!(
                    "<Option<{}>>::make(acc).ok_or({})",
                    ok.text(),
                    self.of(r, err, d)
                ),
                _ => format!("Ok::<{}, {}>({})", ok.text(), err.text(), self.of(r, ok, d)),
            },
        }
    }

    fn list(&self, r: &mut Random, types: &[Ty], depth: u32) -> String {
        let all: Vec<String> = types.iter().map(|t| self.of(r, t, depth)).collect();
        all.join(", ")
    }

    fn made(&self, r: &mut Random, ty: &Ty) -> String {
        let n = r.below(1 << 20);
        match ty {
            Ty::Int(name) if r.below(4) == 0 => format!("({n}u64 as {name})"),
            Ty::Float(bits) if r.below(4) == 0 => format!("{}f{bits}", n as f64 / 64.0),
            _ => format!("<{}>::make(mix(acc, {n}))", ty.text()),
        }
    }

    /// A field, an element, or what is in an `Option`.
    fn part(&self, r: &mut Random, ty: &Ty) -> Option<String> {
        let mut all = Vec::new();
        for (name, of) in &self.scope.vars {
            match of {
                Ty::Array(inner, n) if **inner == *ty => {
                    all.push(format!("{name}[black_box(acc) as usize % {n}]"));
                }
                Ty::Opt(inner) if **inner == *ty => {
                    let n = r.below(1 << 20);
                    let made = format!("<{}>::make(mix(acc, {n}))", ty.text());
                    all.push(format!("{name}.unwrap_or({made})"));
                }
                Ty::Res(inner, _) if **inner == *ty => {
                    all.push(format!(
                        "{name}.unwrap_or_else(|e| <{}>::make(e.h()))",
                        ty.text()
                    ));
                }
                Ty::Named(n) => {
                    if let Def::Struct(fields) = &self.defs[*n] {
                        let own = (0..fields.len()).filter(|i| fields[*i] == *ty);
                        all.extend(own.map(|i| format!("{name}.{i}")));
                    }
                }
                Ty::Tuple(fields) => {
                    let own = (0..fields.len()).filter(|i| fields[*i] == *ty);
                    all.extend(own.map(|i| format!("{name}.{i}")));
                }
                _ => {}
            }
        }
        (!all.is_empty()).then(|| all.swap_remove(r.below(all.len())))
    }

    fn int(&self, r: &mut Random, name: &'static str, d: u32) -> String {
        let ty = Ty::Int(name);
        let a = self.of(r, &ty, d);
        match r.below(14) {
            0..=3 => {
                let op = [
                    "wrapping_add",
                    "wrapping_sub",
                    "wrapping_mul",
                    "min",
                    "max",
                    "saturating_add",
                    "saturating_sub",
                ];
                let op = op[r.below(op.len())];
                format!("<{name}>::{op}({a}, {})", self.of(r, &ty, d))
            }
            4 => {
                let op = ["^", "&", "|"][r.below(3)];
                format!("({a} {op} {})", self.of(r, &ty, d))
            }
            5 => {
                let op = [
                    "wrapping_shl",
                    "wrapping_shr",
                    "rotate_left",
                    "rotate_right",
                ][r.below(4)];
                format!(
                    "<{name}>::{op}({a}, {} & 63)",
                    self.of(r, &Ty::Int("u32"), d)
                )
            }
            6 => {
                let op = [
                    "checked_add",
                    "checked_sub",
                    "checked_mul",
                    "checked_div",
                    "checked_rem",
                ][r.below(5)];
                let (b, c) = (self.of(r, &ty, d), self.of(r, &ty, d));
                format!("<{name}>::{op}({a}, {b}).unwrap_or({c})")
            }
            7 => {
                let op = ["wrapping_div", "wrapping_rem"][r.below(2)];
                format!("<{name}>::{op}({a}, {} | 1)", self.of(r, &ty, d))
            }
            8 => {
                let op = ["overflowing_mul", "overflowing_add", "overflowing_sub"][r.below(3)];
                format!("<{name}>::{op}({a}, {}).0", self.of(r, &ty, d))
            }
            9 => {
                let op = ["leading_zeros", "trailing_zeros", "count_ones"][r.below(3)];
                format!("(<{name}>::{op}({a}) as {name})")
            }
            10 => {
                let op = ["swap_bytes", "reverse_bits", "to_be"][r.below(3)];
                format!("<{name}>::{op}({a})")
            }
            11 => {
                let from = Ty::Int(INTS[r.below(INTS.len())]);
                format!("({} as {name})", self.of(r, &from, d))
            }
            12 => {
                let from = Ty::Float([32, 64][r.below(2)]);
                format!("({} as {name})", self.of(r, &from, d))
            }
            _ => format!("({}.h() as {name})", self.of(r, &Ty::Bool, d)),
        }
    }

    fn float(&self, r: &mut Random, bits: u8, d: u32) -> String {
        let ty = Ty::Float(bits);
        let a = self.of(r, &ty, d);
        match r.below(11) {
            0..=4 => {
                let op = ["+", "-", "*", "/", "%"][r.below(5)];
                format!("({a} {op} {})", self.of(r, &ty, d))
            }
            5 => format!("min{bits}({a}, {})", self.of(r, &ty, d)),
            6 => format!("max{bits}({a}, {})", self.of(r, &ty, d)),
            7 => format!("sign{bits}({a}, {})", self.of(r, &ty, d)),
            8 => {
                let from = Ty::Int(INTS[r.below(INTS.len())]);
                format!("({} as f{bits})", self.of(r, &from, d))
            }
            9 => format!("({} as f{bits})", self.of(r, &Ty::Float(96 - bits), d)),
            _ => format!("(-{a})"),
        }
    }

    /// An expression of type `bool`.
    pub fn cond(&self, r: &mut Random, d: u32) -> String {
        let d = d.saturating_sub(1);
        match r.below(5) {
            0 | 1 => {
                let ty = Ty::Int(INTS[r.below(INTS.len())]);
                let op = ["<", "<=", "==", "!=", ">"][r.below(5)];
                format!("(({}) {op} ({}))", self.of(r, &ty, d), self.of(r, &ty, d))
            }
            2 => {
                let ty = Ty::Float([32, 64][r.below(2)]);
                let op = ["<", "<=", "==", "!="][r.below(4)];
                format!("(({}) {op} ({}))", self.of(r, &ty, d), self.of(r, &ty, d))
            }
            3 => format!("(acc >> {} & 1 == 1)", r.below(64)),
            _ => {
                let op = ["&&", "||", "^"][r.below(3)];
                format!(
                    "({} {op} {})",
                    self.made(r, &Ty::Bool),
                    self.of(r, &Ty::Bool, d)
                )
            }
        }
    }
}
