//! A machine that runs byte code, an assembler for it, state machines, patterns of slices, large matches.

use core::fmt::Write;

use dyad::prelude::thread::*;

use crate::schedule::point;

#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Push,
    Add,
    Sub,
    Mul,
    Div,
    Dup,
    Swap,
    Jz,
    Jmp,
    Load,
    Store,
    Print,
    Call,
    Ret,
    Lt,
    Halt,
    Rot,
    Over,
    And,
    Or,
    Xor,
    Not,
    Shl,
    Shr,
    Neg,
    Mod,
}

const OPS: [Op; 26] = {
    use Op::*;
    [
        Push, Add, Sub, Mul, Div, Dup, Swap, Jz, Jmp, Load, Store, Print, Call, Ret, Lt, Halt, Rot,
        Over, And, Or, Xor, Not, Shl, Shr, Neg, Mod,
    ]
};

/// Why a program stops.
#[derive(Debug)]
#[allow(dead_code, reason = "all of it is printed")]
enum Fault {
    Underflow(usize),
    DivZero { at: usize },
    BadOp(u8),
    BadJump(i64),
    Limit,
}

/// A stack machine.
struct Vm<'c, 'o> {
    code: &'c [u8],
    pc: usize,
    st: Vec<i64>,
    ret: Vec<usize>,
    mem: [i64; 16],
    out: &'o mut String,
    steps: u32,
}

impl Vm<'_, '_> {
    fn pop(&mut self) -> Result<i64, Fault> {
        self.st.pop().ok_or(Fault::Underflow(self.pc))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let b = *self
            .code
            .get(self.pc)
            .ok_or(Fault::BadJump(self.pc as i64))?;
        self.pc += 1;
        Ok(b)
    }

    fn step(&mut self) -> Result<bool, Fault> {
        self.steps += 1;
        if self.steps > 5000 {
            return Err(Fault::Limit);
        }
        let b = self.byte()?;
        let op = *OPS.get(b as usize).ok_or(Fault::BadOp(b))?;
        point();
        match op {
            Op::Push => {
                let v = self.byte()? as i8 as i64;
                self.st.push(v)
            }
            Op::Add => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a.wrapping_add(b))
            }
            Op::Sub => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a.wrapping_sub(b))
            }
            Op::Mul => {
                let (b, a) = (self.pop()?, self.pop()?);
                point();
                self.st.push(a.wrapping_mul(b))
            }
            Op::Div => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st
                    .push(a.checked_div(b).ok_or(Fault::DivZero { at: self.pc })?)
            }
            Op::Mod => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a.checked_rem(b).ok_or_else(|| {
                    point();
                    Fault::DivZero { at: self.pc }
                })?)
            }
            Op::Dup => {
                let a = self.pop()?;
                self.st.extend([a, a])
            }
            Op::Swap => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.extend([b, a])
            }
            Op::Rot => {
                let n = self.st.len();
                if n < 3 {
                    return Err(Fault::Underflow(n));
                }
                self.st[n - 3..].rotate_left(1)
            }
            Op::Over => {
                let a = *self
                    .st
                    .get(self.st.len().wrapping_sub(2))
                    .ok_or(Fault::Underflow(1))?;
                self.st.push(a)
            }
            Op::Jz => {
                let t = self.byte()?;
                if self.pop()? == 0 {
                    self.pc = t as usize;
                    point();
                }
            }
            Op::Jmp => self.pc = self.byte()? as usize,
            Op::Load => {
                let i = self.byte()?;
                self.st.push(self.mem[i as usize & 15])
            }
            Op::Store => {
                let i = self.byte()?;
                let v = self.pop()?;
                self.mem[i as usize & 15] = v
            }
            Op::Print => {
                let v = self.pop()?;
                point();
                write!(self.out, "{v} ").unwrap()
            }
            Op::Call => {
                let t = self.byte()?;
                self.ret.push(self.pc);
                self.pc = t as usize
            }
            Op::Ret => match self.ret.pop() {
                Some(t) => self.pc = t,
                None => return Ok(false),
            },
            Op::Lt => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push((a < b) as i64)
            }
            Op::And => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a & b)
            }
            Op::Or => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a | b)
            }
            Op::Xor => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a ^ b)
            }
            Op::Not => {
                let a = self.pop()?;
                self.st.push(!a)
            }
            Op::Shl => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a.wrapping_shl(b as u32))
            }
            Op::Shr => {
                let (b, a) = (self.pop()?, self.pop()?);
                self.st.push(a.wrapping_shr(b as u32))
            }
            Op::Neg => {
                let a = self.pop()?;
                self.st.push(a.wrapping_neg())
            }
            Op::Halt => return Ok(false),
        }
        Ok(true)
    }
}

/// Runs a program of the scene's machine. Gives the number of steps.
fn exec(code: &[u8], out: &mut String) -> Result<u32, Fault> {
    let mut vm = Vm {
        code,
        pc: 0,
        st: vec![],
        ret: vec![],
        mem: [0; 16],
        out,
        steps: 0,
    };
    while vm.step()? {
        if vm.steps.is_multiple_of(64) {
            point();
        }
    }
    Ok(vm.steps)
}

/// Assembles words; `NAME:` is a label, `@NAME` its place.
fn asm(src: &str) -> Vec<u8> {
    let mut labels = alloc::collections::BTreeMap::new();
    let mut code = vec![];
    let mut fix = vec![];
    for w in src.split_whitespace() {
        point();
        match w.as_bytes() {
            [name @ .., b':'] => {
                labels.insert(name.to_vec(), code.len() as u8);
            }
            [b'@', name @ ..] => {
                fix.push((code.len(), name.to_vec()));
                code.push(0)
            }
            [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..] => {
                code.push(w.parse::<i8>().unwrap() as u8)
            }
            [b'm', n] => code.push(n - b'0'),
            _ => code.push(match w {
                "push" => Op::Push,
                "add" => Op::Add,
                "sub" => Op::Sub,
                "mul" => Op::Mul,
                "div" => Op::Div,
                "dup" => Op::Dup,
                "swap" => Op::Swap,
                "jz" => Op::Jz,
                "jmp" => Op::Jmp,
                "load" => Op::Load,
                "store" => Op::Store,
                "print" => Op::Print,
                "call" => Op::Call,
                "ret" => Op::Ret,
                "lt" => Op::Lt,
                "halt" => Op::Halt,
                "rot" => Op::Rot,
                "over" => Op::Over,
                "mod" => Op::Mod,
                other => panic!("{other}"),
            } as u8),
        }
    }
    for (at, name) in fix {
        point();
        code[at] = labels[&name]
    }
    code
}

/// States of the machine that reads words and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum S {
    Start,
    InWord(u32),
    Num { neg: bool, v: i32 },
    Done(char),
}

fn machine(s: &str) -> Vec<S> {
    let mut st = S::Start;
    let mut all = vec![];
    for c in s.chars() {
        point();
        st = match (st, c) {
            (S::Start | S::Done(_), '-') => S::Num { neg: true, v: 0 },
            (S::Start | S::Done(_), '0'..='9') => S::Num {
                neg: false,
                v: c as i32 - 48,
            },
            (S::Num { neg, v }, d @ '0'..='9') => {
                point();
                S::Num {
                    neg,
                    v: v * 10 + (d as i32 - 48),
                }
            }
            (S::Num { neg: true, v }, ' ') if v > 10 => S::Done('-'),
            (S::Num { .. }, _) => S::Done('n'),
            (S::InWord(n), c) if c.is_alphabetic() => S::InWord(n + 1),
            (S::InWord(_), _) => S::Done('w'),
            (_, c) if c.is_alphabetic() => S::InWord(1),
            _ => S::Start,
        };
        all.push(st)
    }
    all
}

/// Patterns of slices.
fn sum(v: &[i32]) -> i64 {
    point();
    match v {
        [] => 0,
        [x] => *x as i64,
        [a, b] => (*a as i64) * (*b as i64),
        [a, mid @ .., z] if a < z => *a as i64 - *z as i64 + sum(mid),
        [a, rest @ ..] => *a as i64 + sum(rest),
    }
}

/// A match that becomes a table.
#[inline(never)]
fn big_match(n: u32, x: u64) -> u64 {
    point();
    match n % 40 {
        0 => x.wrapping_add(1),
        1 => x ^ 0x55,
        2 => x.rotate_left(3),
        3 => x.wrapping_mul(3),
        4 => {
            point();
            x / 3
        }
        5 => x - (x >> 3),
        6 => !x,
        7 => x.swap_bytes(),
        8 => x.count_ones() as u64,
        9 => x | 1,
        10 => x & 0xffff_ffff,
        11 => x.wrapping_add(x.leading_zeros() as u64),
        12 => {
            point();
            x.wrapping_mul(x)
        }
        13 => x % 1001,
        14 => x.reverse_bits(),
        15..=17 => x.wrapping_add(n as u64),
        18 => x << 1,
        19 => x >> 1,
        20 | 22 | 24 => {
            point();
            x ^ n as u64
        }
        21 => 7,
        23 => x.trailing_zeros() as u64 ^ x,
        25 => x.wrapping_add(25),
        26 => x ^ 26,
        27 => x.wrapping_sub(27),
        28 => x.wrapping_mul(28),
        29 => big_match(n + 1, x),
        _ => x.wrapping_add(dyad_random::GOLDEN),
    }
}

/// All of it.
pub fn run(out: &mut String) {
    let fact = asm(
        "push 1 store m0 push 12 store m1 top: load m1 jz @end load m0 load m1 mul store m0 \
 load m1 push 1 sub store m1 jmp @top end: load m0 print halt",
    );
    let r = exec(&fact, out);
    writeln!(out, "{r:?}").unwrap();
    let fib = asm(
        "push 12 call @fib print halt fib: dup push 2 lt jz @rec ret \
 rec: dup push 1 sub call @fib swap push 2 sub call @fib add ret",
    );
    let r = exec(&fib, out);
    writeln!(out, "{r:?}").unwrap();
    for bad in [
        &[1u8][..],
        &[0, 5, 0, 0, 4],
        &[99],
        &[8, 200],
        &[8, 0],
        &[0, 1, 0, 2, 0, 3, 16, 11, 11, 11, 17],
    ] {
        let r = exec(bad, out);
        writeln!(out, "{r:?}").unwrap();
    }
    writeln!(
        out,
        "{:?}",
        machine("ab -12 3x -123 q9 --7!")
            .iter()
            .map(|s| match s {
                S::Start => "s".to_string(),
                S::InWord(n) => format!("w{n}"),
                S::Num { neg, v } => format!("{}{v}", if *neg { "-" } else { "+" }),
                S::Done(c) => format!("d{c}"),
            })
            .collect::<Vec<_>>()
    )
    .unwrap();
    writeln!(
        out,
        "{} {} {}",
        sum(&[1, 2, 3, 4, 5]),
        sum(&[9, 3, -4, 8, 2, 7]),
        sum(&[])
    )
    .unwrap();
    let mut x = 12345;
    for i in 0..200 {
        x = big_match(i * 7, x) ^ (i as u64) << 20;
    }
    writeln!(out, "{x}").unwrap();
}
