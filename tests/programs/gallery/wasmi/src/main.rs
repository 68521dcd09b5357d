//! wasmi: a WebAssembly module sorts and computes, moving within functions of the host that it calls.
#![no_std]
#![no_main]

use gallery::*;
use wasmi::{Caller, Config, Engine, Linker, Module, Store, TypedFunc, Val};

/// `program.wat`, assembled.
const WASM: &[u8] = include_bytes!("program.wasm");

/// What the module's host knows.
struct Host {
    calls: u64,
    log: Vec<i64>,
}

fn program() -> Result<()> {
    let mut seed = Seeded(30);
    let mut config = Config::default();
    config.consume_fuel(true);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, WASM).map_err(failed)?;
    say!(
        "{:?}",
        module.exports().map(|e| e.name()).collect::<Vec<_>>()
    );
    let mut store = Store::new(
        &engine,
        Host {
            calls: 0,
            log: Vec::new(),
        },
    );
    store.set_fuel(5_000_000).map_err(failed)?;
    let mut linker = <Linker<Host>>::new(&engine);
    let less = |mut caller: Caller<'_, Host>, a: i32, b: i32| -> i32 {
        caller.data_mut().calls += 1;
        hop_each(3);
        i32::from(a < b)
    };
    linker.func_wrap("host", "less", less).map_err(failed)?;
    let log = |mut caller: Caller<'_, Host>, n: i64| {
        hop();
        caller.data_mut().log.push(n);
    };
    linker.func_wrap("host", "log", log).map_err(failed)?;
    let instance = linker
        .instantiate_and_start(&mut store, &module)
        .map_err(failed)?;

    let memory = instance
        .get_memory(&store, "memory")
        .ok_or_else(|| Error::msg("no memory"))?;
    let numbers: Vec<u8> = (0..80)
        .flat_map(|_| (seed.word() as i32 >> 12).to_le_bytes())
        .collect();
    memory.write(&mut store, 0, &numbers).map_err(failed)?;
    let sort: TypedFunc<i32, ()> = instance.get_typed_func(&store, "sort").map_err(failed)?;
    sort.call(&mut store, 80).map_err(failed)?;
    let sorted: Vec<i32> = memory.data(&store)[..320]
        .as_chunks()
        .0
        .iter()
        .map(|b| i32::from_le_bytes(*b))
        .collect();
    say!("{sorted:?} {} {}", sorted.is_sorted(), store.data().calls);

    let factorial: TypedFunc<i64, i64> = instance
        .get_typed_func(&store, "factorial")
        .map_err(failed)?;
    say!("{:?}", factorial.call(&mut store, 20).map_err(failed)?);
    say!("{:?}", store.data().log);
    let series: TypedFunc<(f64, i32), f64> =
        instance.get_typed_func(&store, "series").map_err(failed)?;
    for n in 0..10 {
        let sum = series
            .call(&mut store, (seed.unit() * 3.0, 5 + n))
            .map_err(failed)?;
        say!("{sum:?} {:016x}", sum.to_bits());
    }
    let apply = instance
        .get_func(&store, "apply")
        .ok_or_else(|| Error::msg("no function"))?;
    for (which, n) in [(0, 7), (1, 7), (2, 40), (3, 1), (1, i32::MIN)] {
        let mut out = [Val::I32(0)];
        let result = apply.call(&mut store, &[Val::I32(which), Val::I32(n)], &mut out);
        say!(
            "{which} of {n}: {}",
            result.map_or_else(|e| e.to_string(), |()| format!("{out:?}"))
        );
    }
    let forever: TypedFunc<(), ()> = instance.get_typed_func(&store, "forever").map_err(failed)?;
    store.set_fuel(10_000).map_err(failed)?;
    say!(
        "{:?}",
        forever.call(&mut store, ()).map_err(|e| e.to_string())
    );
    for wrong in [&WASM[..20], &WASM[1..]] {
        say!(
            "{:?}",
            Module::new(&engine, wrong)
                .map(|_| ())
                .map_err(|e| e.to_string())
        );
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
