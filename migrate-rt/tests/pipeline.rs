//! The whole pipeline on a program with a dependency.

mod common;

use common::{build_sample, scratch};

#[test]
fn first() {
    let out = scratch("first");
    let t = std::time::Instant::now();
    match build_sample(&out, &[]) {
        Ok(b) => {
            println!("{:#?} {:?}", b, t.elapsed());
            println!("{}", migrate_rt::bundle::describe(&b.bundle).unwrap());
        }
        Err(e) => panic!("{e}"),
    }
    let t = std::time::Instant::now();
    println!(
        "{:?} {:?}",
        build_sample(&out, &[]).unwrap().report,
        t.elapsed()
    );
    for f in ["target-intrinsic", "inline-asm", "builtin-address"] {
        println!("--- {f}: {}", build_sample(&out, &[f]).unwrap_err());
    }
}
