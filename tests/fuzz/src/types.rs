//! Types of values and of arguments.

use crate::Random;

/// Integer types.
pub const INTS: [&str; 12] = [
    "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "usize", "isize", "u128", "i128",
];

/// A type of a value that can be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ty {
    /// An integer.
    Int(&'static str),
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// `f32` or `f64`.
    Float(u8),
    /// A type of the program, by its number.
    Named(usize),
    /// Two or three.
    Tuple(Vec<Ty>),
    /// An array.
    Array(Box<Ty>, usize),
    /// An `Option`.
    Opt(Box<Ty>),
    /// A `Result`.
    Res(Box<Ty>, Box<Ty>),
}

/// A type that a program defines.
#[derive(Clone, Debug)]
pub enum Def {
    /// Fields.
    Struct(Vec<Ty>),
    /// Variants, with their fields.
    Enum(Vec<Vec<Ty>>),
}

/// What a function takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A value.
    Val(Ty),
    /// A reference to one.
    Ref(Ty),
    /// A reference to one, which the function changes.
    Mut(Ty),
    /// A slice.
    Slice(Ty),
    /// Something that can be called.
    Call,
}

/// Arguments and result of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sig {
    /// Its arguments.
    pub args: Vec<Arg>,
    /// Its result.
    pub result: Ty,
}

impl Ty {
    /// The type in a program.
    pub fn text(&self) -> String {
        match self {
            Ty::Int(name) => (*name).to_owned(),
            Ty::Bool => "bool".to_owned(),
            Ty::Char => "char".to_owned(),
            Ty::Float(bits) => format!("f{bits}"),
            Ty::Named(n) => format!("T{n}"),
            Ty::Tuple(all) => {
                let all: Vec<String> = all.iter().map(Ty::text).collect();
                format!("({})", all.join(", "))
            }
            Ty::Array(ty, n) => format!("[{}; {n}]", ty.text()),
            Ty::Opt(ty) => format!("Option<{}>", ty.text()),
            Ty::Res(ok, err) => format!("Result<{}, {}>", ok.text(), err.text()),
        }
    }

    /// How many words it has, about.
    pub fn words(&self, defs: &[Def]) -> usize {
        let sum = |all: &[Ty]| all.iter().map(|t| t.words(defs)).sum();
        match self {
            Ty::Int("u128" | "i128") => 2,
            Ty::Tuple(all) => sum(all),
            Ty::Array(ty, n) => ty.words(defs) * n,
            Ty::Opt(ty) => ty.words(defs) + 1,
            Ty::Res(ok, err) => ok.words(defs) + err.words(defs),
            Ty::Named(n) => match &defs[*n] {
                Def::Struct(fields) => sum(fields),
                Def::Enum(variants) => sum(&variants.concat()),
            },
            _ => 1,
        }
    }

    /// A type of one value.
    pub fn scalar(r: &mut Random) -> Ty {
        match r.below(20) {
            0 => Ty::Bool,
            1 => Ty::Char,
            2..=4 => Ty::Float(64),
            5..=6 => Ty::Float(32),
            n => Ty::Int(INTS[(n - 7) % 12]),
        }
    }

    /// Any type of at most so many words.
    pub fn any(r: &mut Random, defs: &[Def], most: usize) -> Ty {
        for _ in 0..4 {
            let ty = Ty::made(r, defs);
            if ty.words(defs) <= most {
                return ty;
            }
        }
        Ty::scalar(r)
    }

    fn made(r: &mut Random, defs: &[Def]) -> Ty {
        if r.below(3) == 0 {
            return Ty::scalar(r);
        }
        match r.below(9) {
            0..=3 if !defs.is_empty() => Ty::Named(r.below(defs.len())),
            4 => Ty::Array(Box::new(Ty::made(r, defs)), 1 + r.below(5)),
            5 => Ty::Opt(Box::new(Ty::made(r, defs))),
            6 => Ty::Res(Box::new(Ty::made(r, defs)), Box::new(Ty::scalar(r))),
            7 => Ty::Tuple(vec![Ty::made(r, defs), Ty::scalar(r), Ty::scalar(r)]),
            8 => Ty::Tuple(vec![Ty::made(r, defs), Ty::scalar(r)]),
            _ => Ty::scalar(r),
        }
    }
}

impl Def {
    /// A random one.
    pub fn any(r: &mut Random, defs: &[Def]) -> Def {
        let list = |r: &mut Random, most: usize| -> Vec<Ty> {
            (0..r.below(most + 1))
                .map(|_| Ty::any(r, defs, 10))
                .collect()
        };
        match r.below(3) {
            0 => Def::Enum((0..2 + r.below(4)).map(|_| list(r, 3)).collect()),
            _ => Def::Struct(list(r, 6)),
        }
    }
}

impl Arg {
    /// The type in a signature.
    pub fn text(&self) -> String {
        match self {
            Arg::Val(ty) => ty.text(),
            Arg::Ref(ty) => format!("&{}", ty.text()),
            Arg::Mut(ty) => format!("&mut {}", ty.text()),
            Arg::Slice(ty) => format!("&[{}]", ty.text()),
            Arg::Call => "&dyn Fn(u64) -> u64".to_owned(),
        }
    }

    fn any(r: &mut Random, defs: &[Def]) -> Arg {
        match r.below(12) {
            0 => Arg::Ref(Ty::any(r, defs, 16)),
            1 => Arg::Mut(Ty::any(r, defs, 16)),
            2 => Arg::Slice(Ty::any(r, defs, 8)),
            3 => Arg::Call,
            4..=6 => Arg::Val(Ty::any(r, defs, 16)),
            _ => Arg::Val(Ty::scalar(r)),
        }
    }
}

impl Sig {
    /// A random one.
    pub fn any(r: &mut Random, defs: &[Def]) -> Sig {
        let count = [0, 1, 2, 3, 4, 5, 7, 10, 14][r.below(9)];
        // In one list of four every other argument has 128 bits: they meet the last register, and are on the stack.
        let wide = r.below(4) == 0;
        let arg = |i: usize| match wide && i % 2 == 1 {
            true => Arg::Val(Ty::Int(["u128", "i128"][r.below(2)])),
            false => Arg::any(r, defs),
        };
        Sig {
            args: (0..count).map(arg).collect(),
            result: Ty::any(r, defs, 24),
        }
    }

    /// The arguments in a declaration, with the depth of calls that is left.
    pub fn parameters(&self) -> String {
        let each = self.args.iter().enumerate();
        let all: String = each.map(|(i, a)| format!("a{i}: {}, ", a.text())).collect();
        format!("{all}depth: u32")
    }

    /// The type of a pointer to such a function.
    pub fn pointer(&self) -> String {
        let all: String = self.args.iter().map(|a| a.text() + ", ").collect();
        format!("fn({all}u32) -> {}", self.result.text())
    }
}
