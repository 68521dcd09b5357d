//! Statements that use the library: collections, text, chains of results, slices, builders.

use super::Body;
use crate::types::Ty;

impl Body<'_> {
    /// A type of elements of collections, which all programs share, so that what is generic is there once.
    fn shared(&mut self) -> &'static str {
        ["(u32, f64)", "[u16; 3]", "Option<i64>", "f32"][self.r.below(4)]
    }

    pub(super) fn vector(&mut self) {
        let (ty, other) = (self.shared(), self.shared());
        let name = self.name();
        match self.r.below(4) {
            0 => self.line(&format!(
                "acc = mix(acc, sorted::<{ty}>(acc, |v| {{ point(); v.h() % 7 }}));"
            )),
            1 => {
                self.line(&format!("let mut {name}: Vec<{ty}> = Vec::new();"));
                self.line(&format!(
                    "for i in 0..acc % 9 {{ {name}.push(<{ty}>::make(mix(acc, i))); point(); }}"
                ));
                self.line(&format!("{name}.retain(|v| v.h() % 5 != 2);"));
                self.line(&format!(
                    "acc = {name}.iter().rev().fold(acc, |h, v| {{ point(); mix(h, v.h()) }});"
                ));
            }
            2 => {
                self.line(&format!(
                    "let {name}: Vec<({ty}, {other})> = (0..acc % 7).map(|i| {{ point(); (<{ty}>::make(mix(acc, i)), <{other}>::make(i)) }}).collect();"
                ));
                self.line(&format!(
                    "acc = mix(acc, {name}.iter().zip({name}.iter().skip(1)).filter(|(a, _)| a.h() & 3 != 0).map(|(a, b)| {{ point(); mix(a.0.h(), b.1.h()) }}).fold(acc, mix));"
                ));
            }
            _ => {
                self.line(&format!(
                    "let {name}: Box<[{ty}; 6]> = Box::new(<[{ty}; 6]>::make(acc));"
                ));
                self.line(&format!(
                    "for v in {name}.iter() {{ point(); acc = mix(acc, v.h()); }}"
                ));
            }
        }
    }

    pub(super) fn map(&mut self) {
        let (ty, name) = (self.shared(), self.name());
        let key = ["u8", "(u32, bool)"][self.r.below(2)];
        self.line(&format!(
            "let mut {name}: BTreeMap<{key}, {ty}> = BTreeMap::new();"
        ));
        self.line(&format!(
            "for i in 0..acc % 14 {{ point(); {name}.insert(<{key}>::make(mix(acc, i) % 9 + 40), <{ty}>::make(i)); }}"
        ));
        self.line(&format!("{name}.remove(&<{key}>::make(41));"));
        self.line(&format!(
            "for (key, value) in &{name} {{ point(); acc = mix(mix(acc, key.h()), value.h()); }}"
        ));
    }

    pub(super) fn string(&mut self) {
        let (ty, name) = (
            Ty::Int(["u8", "i32", "u64", "i128"][self.r.below(4)]),
            self.name(),
        );
        let value = self.expr(&ty, 2);
        self.line(&format!("let mut {name} = String::new();"));
        self.line(&format!(
            "for i in 0..acc % 5 {{ {name}.push(char::make(mix(acc, i))); point(); {name} += &format!(\"{{}}:{{:x}};\", i, {value}); }}"
        ));
        self.line(&format!(
            "acc = {name}.bytes().fold(acc, |h, b| mix(h, b as u64));"
        ));
        self.line(&format!(
            "acc = {name}.split(';').filter_map(|p| {{ point(); p.rsplit(':').next()?.parse::<u8>().ok() }}).fold(acc, |h, n| mix(h, n as u64));"
        ));
    }

    /// A chain of results and options with `?`.
    pub(super) fn attempt(&mut self) {
        let (ok, err) = (self.any(8), Ty::scalar(self.r));
        let (a, b) = (
            Ty::Res(Box::new(ok.clone()), Box::new(err.clone())),
            Ty::Opt(Box::new(ok.clone())),
        );
        let (first, second, cond) = (self.expr(&a, 2), self.expr(&b, 2), self.cond());
        let (t, e) = (ok.text(), err.text());
        self.calls -= 1;
        self.line(&format!("let attempt = |n: u64| -> Result<{t}, {e}> {{"));
        self.line(&format!("    let x: {t} = {first}?;"));
        self.line("    point();");
        self.line(&format!(
            "    if {cond} {{ return Err(<{e}>::make(mix(n, x.h()))); }}"
        ));
        self.line(&format!(
            "    let y: {t} = {second}.map(|v| {{ point(); v }}).or_else(|| {{ point(); <Option<{t}>>::make(n) }}).ok_or(<{e}>::make(n))?;"
        ));
        self.line(&format!(
            "    point();\n        Ok(<{t}>::make(mix(n, mix(x.h(), y.h()))))"
        ));
        self.line("};");
        self.line("let attempt = attempt(acc).and_then(|v| { point(); if v.h() & 7 == 0 { attempt(v.h()) } else { Ok(v) } });");
        self.line("acc = mix(acc, attempt.h());");
    }

    pub(super) fn slices(&mut self) {
        let (ty, n) = (self.any(6), 3 + self.r.below(6));
        let array = Ty::Array(Box::new(ty), n);
        let name = self.bind(&array);
        let chunk = 1 + self.r.below(3);
        let text = match self.r.below(4) {
            0 => format!(
                "for part in {name}.chunks({chunk}) {{ point(); acc = mix(acc, all(part)); }}"
            ),
            1 => format!(
                "for part in {name}.windows({chunk}) {{ acc = mix(acc, all(part)); point(); }}"
            ),
            2 => format!(
                "let (left, right) = {name}.split_at(acc as usize % {n}); point(); acc = mix(all(right), all(left));"
            ),
            _ => format!(
                "if let [first, .., last] = &{name} {{ point(); acc = mix(first.h(), mix(acc, last.h())); }}"
            ),
        };
        self.line(&text);
    }

    pub(super) fn builder(&mut self) {
        let (ty, a, b) = (self.any(8), self.any(8), self.any(8));
        let (first, x, y) = (self.expr(&ty, 1), self.expr(&a, 1), self.expr(&b, 1));
        let (t, u, v) = (ty.text(), a.text(), b.text());
        self.line(&format!(
            "acc = mix(acc, Builder::<{t}>::new({first}).with::<{u}>({x}).then(|v| {{ point(); <{t}>::make(mix(v.h(), 5)) }}).with::<{v}>({y}).build());"
        ));
        if self.r.below(2) == 0 {
            let value = self.name();
            self.line(&format!("let {value} = twice::<{u}, {t}>({x}, |v, n| {{ point(); <{t}>::make(mix(v.h(), n)) }});"));
            self.line(&format!("acc = mix({value}.h(), acc);"));
        }
    }
}
