//! Bodies of functions: statements, among them calls in all ways that there are.

mod library;

use std::fmt::Write as _;

use crate::Random;
use crate::expr::{Exprs, Scope};
use crate::types::{Arg, Def, Sig, Ty};

/// What a program has by the time a body is written.
#[derive(Default)]
pub struct Items {
    /// Types, by number.
    pub defs: Vec<Def>,
    /// Functions, by number.
    pub functions: Vec<Sig>,
    /// Methods of the trait, by number.
    pub methods: Vec<Sig>,
    /// Types with that trait.
    pub objects: usize,
    /// Generic functions.
    pub generics: usize,
}

/// Writes the body of one function.
pub struct Body<'a> {
    r: &'a mut Random,
    items: &'a Items,
    /// What can be named.
    pub scope: Scope,
    out: String,
    indent: usize,
    names: usize,
    /// Calls that may still be written: more would multiply all the way down.
    calls: usize,
    /// Whether points are made by the loops of the function.
    asks: bool,
    /// Statements written, by kind: see [`KINDS`].
    pub kinds: u32,
}

/// Statements that there are.
pub const KINDS: [&str; 20] = [
    "let",
    "point",
    "if",
    "for",
    "while",
    "match",
    "assign",
    "call",
    "table",
    "transmute",
    "between",
    "boxed",
    "object",
    "generic",
    "vec",
    "map",
    "string",
    "try",
    "slices",
    "builder",
];

impl<'a> Body<'a> {
    /// An empty body of a function that takes this, and that makes so many calls at most.
    pub fn new(
        r: &'a mut Random,
        items: &'a Items,
        sig: &Sig,
        calls: usize,
        asks: bool,
    ) -> Body<'a> {
        let mut body = Body {
            r,
            items,
            scope: Scope::default(),
            out: String::new(),
            indent: 1,
            names: 0,
            calls,
            asks,
            kinds: 0,
        };
        let start = body.r.below(1 << 30);
        body.line(&format!("let mut acc = {start}u64;"));
        for (i, arg) in sig.args.iter().enumerate() {
            let name = format!("a{i}");
            match arg {
                Arg::Val(ty) => body.scope.vars.push((name, ty.clone())),
                Arg::Ref(ty) => body.scope.vars.push((format!("(*{name})"), ty.clone())),
                Arg::Mut(ty) => {
                    let name = format!("(*{name})");
                    body.scope.vars.push((name.clone(), ty.clone()));
                    body.scope.mutable.push((name, ty.clone()));
                }
                Arg::Slice(_) => body.line(&format!("acc = mix(acc, all({name}));")),
                Arg::Call => body.line(&format!("acc = mix(acc, {name}(acc));")),
            }
        }
        body.line("acc = mix(acc, depth as u64);");
        body
    }

    /// Statements, and the end, which hashes all arguments and gives the result.
    pub fn write(mut self, sig: &Sig, statements: usize) -> (String, u32) {
        let args: Vec<String> = self.scope.vars.iter().map(|v| v.0.clone()).collect();
        let result = sig.result.text();
        let before = self.out.clone();
        self.out.clear();
        self.statements(statements);
        let mut end = String::new();
        for name in &args {
            let _ = writeln!(end, "    acc = mix(acc, {name}.h());");
        }
        for (i, arg) in sig.args.iter().enumerate() {
            match arg {
                Arg::Slice(_) => drop(writeln!(end, "    acc = mix(acc, all(a{i}));")),
                Arg::Mut(ty) => drop(writeln!(end, "    *a{i} = <{}>::make(acc);", ty.text())),
                _ => {}
            }
        }
        let value = match self.r.below(2) {
            0 => format!("<{result}>::make(acc)"),
            _ => {
                let exprs = Exprs {
                    defs: &self.items.defs,
                    scope: &self.scope,
                };
                exprs.of(self.r, &sig.result, 2)
            }
        };
        let early: String = args
            .iter()
            .take(2)
            .map(|a| format!("        acc = mix(acc, {a}.h());\n"))
            .collect();
        let text = format!(
            "{before}    if depth == 0 {{\n        point();\n{early}        return <{result}>::make(acc);\n    }}\n{}    let value = {value};\n{end}    value\n",
            self.out
        );
        (text, self.kinds)
    }

    /// A call of a function by its name, where `acc` and `depth` are, and nothing else.
    pub fn only_call(r: &'a mut Random, items: &'a Items, to: usize) -> String {
        let sig = &items.functions[to];
        let mut body = Body::new(r, items, sig, 1, false);
        body.scope = Scope::default();
        body.out.clear();
        let (passed, behind) = body.begin_call(&sig.args);
        body.end_call(&format!("f{to}({passed})"), behind);
        body.out
    }

    fn line(&mut self, text: &str) {
        let pad = "    ".repeat(self.indent);
        let _ = writeln!(self.out, "{pad}{text}");
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn expr(&mut self, ty: &Ty, depth: u32) -> String {
        let exprs = Exprs {
            defs: &self.items.defs,
            scope: &self.scope,
        };
        exprs.of(self.r, ty, depth)
    }

    fn cond(&mut self) -> String {
        let exprs = Exprs {
            defs: &self.items.defs,
            scope: &self.scope,
        };
        exprs.cond(self.r, 2)
    }

    fn any(&mut self, most: usize) -> Ty {
        Ty::any(self.r, &self.items.defs, most)
    }

    fn point(&mut self) {
        let which = ["point();", "point_or_stay();", "ask();"];
        // Where loops make the points, other ones are rare.
        let which = match (self.asks, self.r.below(4)) {
            (true, 0..=2) => which[2],
            (_, 0) => which[1],
            _ => which[0],
        };
        self.line(which);
    }

    fn statements(&mut self, count: usize) {
        for _ in 0..count {
            self.statement();
        }
    }

    /// Statements in braces: names within are not known behind.
    fn block(&mut self, head: &str, count: usize) {
        let scope = self.scope.clone();
        self.line(&format!("{head} {{"));
        self.indent += 1;
        self.statements(count);
        self.indent -= 1;
        self.line("}");
        self.scope = scope;
    }

    fn statement(&mut self) {
        let deep = self.indent > 3;
        let kind = loop {
            let kind = [
                0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 10, 11, 12, 12, 13, 14, 15, 16, 17, 18,
                19,
            ][self.r.below(25)];
            let possible = match kind {
                2..=5 => !deep,
                7..=9 | 11 => self.calls > 0 && !self.items.functions.is_empty(),
                12 => self.calls > 0 && self.items.objects > 0,
                13 => self.calls > 0 && self.items.generics > 0,
                17 => self.calls > 0,
                _ => true,
            };
            if possible {
                break kind;
            }
        };
        self.kinds |= 1 << kind;
        match kind {
            0 => {
                let ty = self.any(12);
                self.bind(&ty);
            }
            1 => self.point(),
            2 => {
                let (cond, count) = (self.cond(), 1 + self.r.below(2));
                self.block(&format!("if {cond}"), count);
                if self.r.below(2) == 0 {
                    self.block("else", 1);
                }
            }
            3 | 4 => self.repeat(kind == 4),
            5 => self.choose(),
            6 => self.assign(),
            7..=9 => self.call(kind),
            10 => self.between(),
            11 => self.boxed(),
            12 => self.object(),
            13 => self.generic(),
            14 => self.vector(),
            15 => self.map(),
            16 => self.string(),
            17 => self.attempt(),
            18 => self.slices(),
            _ => self.builder(),
        }
    }

    /// A new variable.
    fn bind(&mut self, ty: &Ty) -> String {
        let (value, name) = (self.expr(ty, 2), self.name());
        let mutable = self.r.below(2) == 0;
        let word = if mutable { "let mut" } else { "let" };
        self.line(&format!("{word} {name}: {} = {value};", ty.text()));
        self.line(&format!("acc = mix(acc, {name}.h());"));
        self.scope.vars.push((name.clone(), ty.clone()));
        if mutable {
            self.scope.mutable.push((name.clone(), ty.clone()));
        }
        name
    }

    fn repeat(&mut self, is_while: bool) {
        // A call in a loop is made more than once.
        let calls = std::mem::replace(&mut self.calls, 0);
        let own = (calls > 1 && self.r.below(2) == 0) as usize;
        self.calls = own;
        let index = self.name();
        let most = if own > 0 { 2 } else { 6 };
        let head = match is_while {
            true => {
                self.line(&format!("let mut {index} = acc % {most};"));
                format!("while {index} > 0")
            }
            false => format!("for {index} in 0..acc % {most} + 1"),
        };
        let scope = self.scope.clone();
        self.line(&format!("{head} {{"));
        self.indent += 1;
        if is_while {
            self.line(&format!("{index} -= 1;"));
        }
        self.scope.vars.push((index, Ty::Int("u64")));
        self.point();
        let count = 1 + self.r.below(3);
        self.statements(count);
        match self.r.below(4) {
            0 => self.line("if acc & 7 == 3 { break; }"),
            1 => self.line("if acc & 7 == 5 { continue; }"),
            _ => {}
        }
        self.line("acc = mix(acc, 1);");
        self.indent -= 1;
        self.line("}");
        self.scope = scope;
        self.calls = calls - 2 * own;
    }

    /// A `match` of an enumeration, of an `Option` or of a number.
    fn choose(&mut self) {
        let ty = self.any(12);
        let name = self.bind(&ty);
        let arms: Vec<(String, Vec<(String, Ty)>)> = match &ty {
            Ty::Opt(of) => {
                let inner = self.name();
                vec![
                    ("None".into(), vec![]),
                    (format!("Some({inner})"), vec![(inner, (**of).clone())]),
                ]
            }
            Ty::Res(ok, err) => {
                let (a, b) = (self.name(), self.name());
                vec![
                    (format!("Ok({a})"), vec![(a, (**ok).clone())]),
                    (format!("Err({b})"), vec![(b, (**err).clone())]),
                ]
            }
            Ty::Named(n) => match &self.items.defs[*n] {
                Def::Enum(variants) => {
                    let variants = variants.clone();
                    let mut arms = Vec::new();
                    for (v, fields) in variants.into_iter().enumerate() {
                        let fields: Vec<(String, Ty)> =
                            fields.into_iter().map(|t| (self.name(), t)).collect();
                        let names: Vec<&str> = fields.iter().map(|f| f.0.as_str()).collect();
                        let pattern = match names.is_empty() {
                            true => format!("T{n}::V{v}"),
                            false => format!("T{n}::V{v}({})", names.join(", ")),
                        };
                        arms.push((pattern, fields));
                    }
                    arms
                }
                Def::Struct(_) => return,
            },
            _ => {
                self.line(&format!("match {name}.h() % 5 {{ 0 => acc = mix(acc, 3), 1 | 2 => point(), n => acc = acc.wrapping_add(n) }}"));
                return;
            }
        };
        self.line(&format!("match {name} {{"));
        self.indent += 1;
        for (pattern, fields) in arms {
            let scope = self.scope.clone();
            self.line(&format!("{pattern} => {{"));
            self.indent += 1;
            self.scope.vars.extend(fields.clone());
            if !fields.is_empty() && self.r.below(2) == 0 {
                self.point();
            }
            for (field, _) in &fields {
                self.line(&format!("acc = mix(acc, {field}.h());"));
            }
            self.statements(1);
            self.indent -= 1;
            self.line("}");
            self.scope = scope;
        }
        self.indent -= 1;
        self.line("}");
    }

    fn assign(&mut self) {
        if self.scope.mutable.is_empty() {
            return self.point();
        }
        let (name, ty) = self.scope.mutable[self.r.below(self.scope.mutable.len())].clone();
        match &ty {
            Ty::Array(of, n) if self.r.below(2) == 0 => {
                let value = self.expr(of, 2);
                self.line(&format!("{name}[acc as usize % {n}] = {value};"));
            }
            _ => {
                let value = self.expr(&ty, 2);
                self.line(&format!("{name} = {value};"));
            }
        }
        self.line(&format!("acc = mix(acc, {name}.h());"));
    }

    /// Makes the arguments of a call: variables first, so that no expression needs another one's. What names
    /// them, and what is to be hashed behind the call.
    fn arguments(&mut self, args: &[Arg]) -> (Vec<String>, Vec<String>) {
        let (mut passed, mut behind) = (Vec::new(), Vec::new());
        for arg in args {
            let name = self.name();
            match arg {
                Arg::Val(ty) => {
                    let value = self.expr(ty, 2);
                    self.line(&format!("let {name}: {} = {value};", ty.text()));
                    passed.push(name);
                }
                Arg::Ref(ty) => {
                    let value = self.expr(ty, 1);
                    self.line(&format!("let {name}: {} = {value};", ty.text()));
                    passed.push(format!("&{name}"));
                    behind.push(format!("{name}.h()"));
                }
                Arg::Mut(ty) => {
                    let value = self.expr(ty, 1);
                    self.line(&format!("let mut {name}: {} = {value};", ty.text()));
                    passed.push(format!("&mut {name}"));
                    behind.push(format!("{name}.h()"));
                }
                Arg::Slice(ty) => {
                    let (n, from) = (1 + self.r.below(5), self.r.below(2));
                    self.line(&format!("let {name} = <[{}; {n}]>::make(acc);", ty.text()));
                    passed.push(format!("&{name}[{from}..]"));
                }
                Arg::Call => {
                    let (captured, point) = (self.any(6), self.r.below(2));
                    let value = self.expr(&captured, 1);
                    let point = ["", "point(); "][point];
                    self.line(&format!("let {name}: {} = {value};", captured.text()));
                    let closure = self.name();
                    self.line(&format!(
                        "let {closure} = |n: u64| -> u64 {{ {point}mix(n, {name}.h()) }};"
                    ));
                    passed.push(format!("&{closure}"));
                }
            }
        }
        (passed, behind)
    }

    /// Opens braces for a call; the call's pieces.
    fn begin_call(&mut self, args: &[Arg]) -> (String, Vec<String>) {
        self.calls = self.calls.saturating_sub(1);
        self.line("{");
        self.indent += 1;
        let (passed, behind) = self.arguments(args);
        let passed: String = passed.into_iter().map(|p| p + ", ").collect();
        (format!("{passed}depth - 1"), behind)
    }

    /// Makes a call that gives `result`, and closes the braces.
    fn end_call(&mut self, call: &str, behind: Vec<String>) {
        self.line(&format!("let result = {call};"));
        if self.r.below(2) == 0 {
            self.point();
        }
        self.line("acc = mix(acc, result.h());");
        for hash in behind {
            self.line(&format!("acc = mix(acc, {hash});"));
        }
        self.indent -= 1;
        self.line("}");
    }

    /// A call by name (7), through a table (8), through a pointer of another type (9).
    fn call(&mut self, kind: usize) {
        let to = self.r.below(self.items.functions.len());
        let sig = self.items.functions[to].clone();
        let (passed, behind) = self.begin_call(&sig.args);
        let call = match kind {
            7 => format!("f{to}({passed})"),
            8 => {
                let same =
                    (0..self.items.functions.len()).filter(|i| self.items.functions[*i] == sig);
                let table: Vec<String> = same.map(|i| format!("f{i}")).collect();
                let n = table.len();
                self.line(&format!(
                    "const TABLE: [{}; {n}] = [{}];",
                    sig.pointer(),
                    table.join(", ")
                ));
                format!("black_box(&TABLE)[acc as usize % {n}]({passed})")
            }
            _ => {
                // Rust promises that a value and one that may be missing are passed alike.
                let mut other = sig.clone();
                let mut names: Vec<String> = passed.split(", ").map(str::to_owned).collect();
                let mut text = String::new();
                for (i, arg) in other.args.iter_mut().enumerate() {
                    match arg {
                        Arg::Val(ty @ (Ty::Bool | Ty::Char | Ty::Float(_) | Ty::Int(_)))
                            if self.r.below(2) == 0 =>
                        {
                            text.push_str(&format!("MaybeUninit<{}>, ", ty.text()));
                            names[i] = format!("MaybeUninit::new({})", names[i]);
                        }
                        other => text.push_str(&(other.text() + ", ")),
                    }
                }
                let result = sig.result.text();
                self.line(&format!(
                    "let pointer: {} = black_box(f{to});",
                    sig.pointer()
                ));
                self.line(&format!(
                    "let pointer: fn({text}u32) -> {result} = unsafe {{ core::mem::transmute(pointer) }};"
                ));
                format!("black_box(pointer)({})", names.join(", "))
            }
        };
        self.end_call(&call, behind);
    }

    fn between(&mut self) {
        let (ty, result) = (self.any(10), self.any(10));
        let (value, count) = (self.expr(&ty, 1), self.name());
        let (t, u) = (ty.text(), result.text());
        self.line(&format!("let mut {count} = acc;"));
        self.line(&format!(
            "let (back, result) = between::<{t}, {u}>({value}, &mut |v| {{ {count} = mix({count}, v.h()); point(); <{u}>::make({count}) }});"
        ));
        self.line(&format!(
            "acc = mix(mix(acc, {count}), mix(back.h(), result.h()));"
        ));
    }

    fn boxed(&mut self) {
        let to = self.r.below(self.items.functions.len());
        let sig = self.items.functions[to].clone();
        let result = sig.result.text();
        let (passed, behind) = self.begin_call(&sig.args);
        let which = self.r.below(2);
        self.line("let kept = acc;");
        self.line(&format!(
            "let mut closure: Box<dyn FnMut(u64) -> {result} + '_> = if acc & 1 == {which} {{ Box::new(|n| {{ let r = f{to}({passed}); point(); \
             acc = mix(acc, n); r }}) }} else {{ Box::new(move |n| {{ point(); <{result}>::make(mix(n, kept)) }}) }};"
        ));
        self.line("let result = black_box(&mut closure)(kept);");
        self.line("drop(closure);");
        self.end_call("result", behind);
    }

    fn object(&mut self) {
        let m = self.r.below(self.items.methods.len());
        let sig = self.items.methods[m].clone();
        let objects: Vec<String> = (0..self.items.objects)
            .map(|i| format!("Box::new(O{i}::make(mix(acc, {i})))"))
            .collect();
        let n = objects.len();
        let (passed, behind) = self.begin_call(&sig.args);
        self.line(&format!(
            "let mut objects: [Box<dyn Object>; {n}] = [{}];",
            objects.join(", ")
        ));
        self.line(&format!(
            "let object = &mut objects[black_box(acc) as usize % {n}];"
        ));
        self.line(&format!("let result = object.m{m}({passed});"));
        self.line("acc = mix(acc, object.h());");
        self.end_call("result", behind);
    }

    fn generic(&mut self) {
        let g = self.r.below(self.items.generics);
        let (a, b) = (self.any(10), self.any(10));
        let (x, y) = (self.expr(&a, 2), self.expr(&b, 2));
        self.calls -= 1;
        self.line(&format!(
            "acc = mix(acc, g{g}::<{}, {}>({x}, {y}, depth - 1).h());",
            a.text(),
            b.text()
        ));
    }
}
