//! Passes the linker script, so that the kernel needs no special command line.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rustc-link-arg-bins=-T{dir}/kernel.ld");
    println!("cargo::rustc-link-arg-bins=-n");
    println!("cargo::rerun-if-changed=kernel.ld");
    println!("cargo::rerun-if-changed=build.rs");
}
