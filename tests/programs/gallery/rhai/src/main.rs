//! rhai: a script with closures, maps and strings, moving within the functions, iterators and setters that it calls.
#![no_std]
#![no_main]

use gallery::*;
use rhai::{AST, Array, Dynamic, Engine, EvalAltResult, INT, Map, Scope};

/// A type of the host; the thread moves when a script uses it.
#[derive(Clone, Debug)]
struct Counter(INT);

impl Counter {
    fn get(&mut self) -> INT {
        hop_each(3);
        self.0
    }

    fn set(&mut self, n: INT) {
        hop_each(3);
        self.0 = n;
    }
}

const SORT: &str = r#"
    fn sort(list) {
        if list.len() < 2 { return list; }
        let pivot = twice(list[0]) / 2;
        let less = list.filter(|v| v < pivot);
        let more = list.filter(|v| v > pivot);
        let same = list.filter(|v| v == pivot);
        sort(less) + same + sort(more)
    }
    let list = [];
    for n in 0..60 { list.push((n * 37 + twice(n)) % 101); }
    sort(list)
"#;

const WORDS: &str = r#"
    let counts = #{};
    for word in text.split(" ") {
        let key = word.to_upper();
        if key in counts { counts[key] += twice(1) } else { counts[key] = 2; }
    }
    let all = counts.keys().map(|k| `${k}=${counts[k] / 2}`);
    all.sort();
    all
"#;

const NUMBERS: &str = r#"
    let c = counter(5);
    let s = 0.5;
    for i in 0..40 {
        c.value += i;
        s = s.sqrt() + c.value.to_float() / 3.0 - s.sin();
        if i % 7 == 0 { c.value = twice(i); }
        s = switch i % 4 { 0 => s * 2.0, 1 if s > 3.0 => s - 1.0, _ => s };
    }
    let add = |x| x + s;
    [c.value, s, add.call(1.0), [3, 5, 8, 13, 21].reduce(|a, b| a * b % 1_000_007, 1)]
"#;

fn twice(n: INT) -> INT {
    hop();
    n * 2
}

fn show(name: &str, result: Result<Dynamic, Box<EvalAltResult>>) {
    match result {
        Ok(value) => say!("{name}: {value:?}"),
        Err(e) => say!("{name}: {e}"),
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(29);
    let mut engine = Engine::new();
    // The crate's own limits depend on how it was compiled.
    engine.set_max_call_levels(48);
    engine.set_max_expr_depths(64, 32);
    engine.register_fn("twice", twice);
    engine.register_fn("counter", Counter);
    engine.register_get_set("value", Counter::get, Counter::set);
    engine.on_progress(|n| {
        if n.is_multiple_of(250) {
            hop();
        }
        (n > 200_000).then(|| "too long".into())
    });
    show("sorted", engine.eval(SORT));
    let mut scope = Scope::new();
    scope.push("text", seed.prose(60));
    show("words", engine.eval_with_scope(&mut scope, WORDS));
    let numbers: Array = engine.eval(NUMBERS).map_err(Error::msg)?;
    let bits = numbers.iter().map(|n| {
        n.as_float()
            .map_or(n.as_int().unwrap_or(0) as u64, f64::to_bits)
    });
    say!("numbers: {:x?}", bits.collect::<Vec<_>>());
    let ast: AST = engine
        .compile("fn area(shape) { shape.w * shape.h + twice(1) } let unused = 3;")
        .map_err(Error::msg)?;
    for n in 1..20 {
        let mut shape = Map::new();
        shape.insert("w".into(), (n as INT).into());
        shape.insert("h".into(), (seed.below(50) as INT).into());
        show(
            "area",
            engine.call_fn(&mut Scope::new(), &ast, "area", (shape,)),
        );
    }
    for wrong in [
        "1 +",
        "let x = 1; x.foo()",
        "[1, 2][5]",
        "9223372036854775807 + 1",
        "loop { }",
        "throw #{ code: 7 }",
        "nothing(1)",
    ] {
        show(wrong, engine.eval(wrong));
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
