//! `#[ktest]`: registers an in-kernel test.
//!
//! ```ignore
//! #[ktest]            // runs on every node by itself
//! fn name(cx: &TestCtx<'_>) -> Outcome { .. }
//! #[ktest(ops)]       // the same, and on the host machines of `cargo test`
//! fn name(cx: &TestCtx<'_>) -> Outcome { .. }
//! #[ktest(pair)]      // runs on all nodes together
//! fn name(cx: &TestCtx<'_>) -> Outcome { .. }
//! #[ktest(ops)]       // each of them may take a component of its own, which is given back after the test
//! fn name(rig: &Rig<'_>) -> Outcome { .. }
//! ```
//! The attribute leaves the function as it is and adds an entry to the linker section `ktests`,
//! from which the kernel runs tests by name and the host lists them. Functions must be in the
//! crate `dyad-core`, below `crate::ktest`.

use proc_macro::{TokenStream, TokenTree};

/// See the [crate documentation](crate).
#[proc_macro_attribute]
pub fn ktest(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let (together, on_host) = match arguments.to_string().as_str() {
        "" => (false, false),
        "ops" => (false, true),
        "pair" => (true, false),
        other => {
            return error(&format!(
                "unknown argument `{other}`: write #[ktest], #[ktest(ops)] or #[ktest(pair)]"
            ));
        }
    };
    let mut tokens = item.clone().into_iter();
    let name = loop {
        match tokens.next() {
            Some(TokenTree::Ident(i)) if i.to_string() == "fn" => break tokens.next(),
            Some(_) => {}
            None => break None,
        }
    };
    let Some(TokenTree::Ident(name)) = name else {
        return error("#[ktest] goes on a function");
    };
    let takes_rig = match tokens.next() {
        Some(TokenTree::Group(parameters)) => parameters
            .stream()
            .into_iter()
            .any(|t| matches!(t, TokenTree::Ident(i) if i.to_string() == "Rig")),
        _ => return error("a test has one parameter: a TestCtx or a Rig"),
    };
    let run = match takes_rig {
        true => format!("|cx| crate::ktest::rig::with(cx, {name})"),
        false => name.to_string(),
    };
    let entry = format!(
        "const _: () = {{\
             #[used]\
             #[allow(unsafe_code)]\
             #[unsafe(link_section = \"ktests\")]\
             static ENTRY: crate::ktest::Entry =\
                 crate::ktest::Entry::new(\"{name}\", {together}, {run});\
         }};"
    );
    let host = if on_host {
        format!("#[cfg(test)] #[test] fn {name}_on_hosts() {{ crate::host::ktests::run({run}); }}")
    } else {
        String::new()
    };
    match format!("{entry}{host}").parse::<TokenStream>() {
        Ok(entry) => [item, entry].into_iter().collect(),
        Err(e) => error(&format!("internal error of #[ktest]: {e}")),
    }
}

fn error(text: &str) -> TokenStream {
    format!("compile_error!({text:?});")
        .parse()
        .unwrap_or_default()
}
