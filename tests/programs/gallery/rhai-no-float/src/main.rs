//! rhai without floating point: scripts on integers, strings and maps, moving within closures that they call.
#![no_std]
#![no_main]

use gallery::*;
use rhai::{Array, Dynamic, Engine, EvalAltResult, INT, ImmutableString, Map, Scope};

const PRIMES: &str = r#"
    fn is_prime(n) {
        if n < 2 { return false; }
        let d = 2;
        while d * d <= n {
            if step(n) % d == 0 { return false; }
            d += 1;
        }
        true
    }
    let found = [];
    for n in 0..limit { if is_prime(n) { found.push(n); } }
    found
"#;

const BANK: &str = r#"
    let accounts = #{ ann: 100, bob: 50, eve: 7 };
    let log = [];
    let pay = |from, to, sum| {
        if accounts[from] < sum { throw `${from} has no ${sum}`; }
        accounts[from] -= step(sum);
        accounts[to] += sum;
        log.push(join(from, to));
    };
    for (name, i) in ["ann", "bob", "eve", "ann", "eve"] {
        try {
            pay.call(name, ["bob", "eve", "ann"][i % 3], 10 + i * 9);
        } catch (why) {
            log.push(why);
        }
    }
    accounts.log = log;
    accounts
"#;

const TEXT: &str = r#"
    let out = "";
    for c in text.to_chars() {
        out += switch c { 'a' => 'A', 'e' | 'i' => '#', ' ' => '_', _ => c };
    }
    out.sub_string(0, 48) + out.len()
"#;

fn show(name: &str, result: Result<Dynamic, Box<EvalAltResult>>) {
    match result {
        Ok(value) => say!("{name}: {value:?}"),
        Err(e) => say!("{name}: {e}"),
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(31);
    let mut engine = Engine::new();
    engine.set_max_call_levels(32);
    engine.set_max_expr_depths(64, 32);
    engine.register_fn("step", |n: INT| {
        hop();
        n
    });
    engine.register_fn("join", |a: ImmutableString, b: ImmutableString| {
        hop();
        a + "->" + b
    });
    let mut scope = Scope::new();
    scope.push("limit", 60 as INT);
    scope.push("text", seed.prose(20));
    show("primes", engine.eval_with_scope(&mut scope, PRIMES));
    show("text", engine.eval_with_scope(&mut scope, TEXT));
    let bank: Map = engine.eval(BANK).map_err(Error::msg)?;
    for (name, value) in &bank {
        say!("{name}: {value:?}");
    }
    let twice: Array = engine
        .eval("[1, 2, 3].map(|n| step(n) * 2) + [(-7) % 3, 1 << 40, 0xff ^ 0b11]")
        .map_err(Error::msg)?;
    say!("{twice:?}");
    for wrong in [
        "1 / 0",
        "let x = 1.5;",
        "step(\"a\")",
        "[1][2]",
        "if",
        "'ab'",
    ] {
        show(wrong, engine.eval(wrong));
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
