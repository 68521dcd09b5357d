//! The attributes of Dyad programs. `#[dyad::task]` makes an async function the program's main task,
//! [`mod@isa`] a function one that runs on one ISA only.
//!
//! The first keeps the function as it is and adds the entry symbol that kernels call (on the host, a C
//! `main` that runs the program in the emulated system). Use it as `dyad::task`; the crate
//! `dyad` must be a dependency under that name.
#![forbid(unsafe_code)]

mod isa;

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// What is added, with `MAIN` and `CALL` to be filled in.
const ENTRY: &str = r#"
    const _: () = {
        fn start(argument: u64) -> ! {
            ::dyad::rt::CALL(argument, MAIN)
        }

        #[cfg(target_os = "none")]
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn _dyad_start(argument: u64) -> ! {
            start(argument)
        }

        #[cfg(not(target_os = "none"))]
        #[allow(unsafe_code)]
        #[unsafe(export_name = "main")]
        extern "C" fn host_main(_argc: i32, _argv: *const *const u8) -> i32 {
            ::dyad::rt::host_main(start)
        }
    };
"#;

/// Marks the main task: `async fn main()` or `async fn main(args: Args)`, returning nothing or
/// `Result<()>`.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if let Some(first) = arguments.into_iter().next() {
        return error(first.span(), "#[dyad::task] takes no arguments", item);
    }
    match inspect(&item) {
        Ok(main) => {
            let call = if main.takes_args {
                "main_with_args"
            } else {
                "main_without_args"
            };
            // The text is a constant; it parses.
            let entry: TokenStream = ENTRY.parse().unwrap_or_default();
            let mut out = item;
            out.extend(fill(entry, &main.name, call));
            out
        }
        Err((span, message)) => error(span, message, item),
    }
}

/// Marks a function that runs on one ISA only: `#[dyad::isa(aarch64)] extern "C" fn f(a: u64) -> u64`. Calls
/// from the other one cross.
#[proc_macro_attribute]
pub fn isa(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match isa::expand(arguments, &item) {
        Ok(out) => out,
        Err((span, message)) => error(span, message, item),
    }
}

struct Main {
    name: Ident,
    takes_args: bool,
}

/// Reads as much of a function's signature as decides which entry it gets; the compiler checks
/// the types.
fn inspect(item: &TokenStream) -> Result<Main, (Span, &'static str)> {
    const WHAT: &str =
        "#[dyad::task] goes on the main task: `async fn main(args: Args) -> Result<()>`";
    let mut tokens = item.clone().into_iter().peekable();
    let mut is_async = false;
    let mut last = Span::call_site();
    // Attributes, visibility and qualifiers come before `fn`.
    loop {
        let Some(token) = tokens.next() else {
            return Err((last, WHAT));
        };
        last = token.span();
        match &token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "fn" => break,
                "async" => is_async = true,
                "pub" => {}
                "unsafe" | "extern" | "const" => {
                    return Err((last, "the main task is a plain `async fn`"));
                }
                _ => return Err((last, WHAT)),
            },
            TokenTree::Punct(p) if p.as_char() == '#' => {}
            TokenTree::Group(_) => {}
            _ => return Err((last, WHAT)),
        }
    }
    let Some(TokenTree::Ident(name)) = tokens.next() else {
        return Err((last, WHAT));
    };
    if !is_async {
        return Err((name.span(), "the main task must be async: write `async fn`"));
    }
    match tokens.next() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            let takes_args = match parameters(&group) {
                0 => false,
                1 => true,
                _ => {
                    let message = "the main task takes nothing or one parameter, `args: Args`";
                    return Err((group.span(), message));
                }
            };
            Ok(Main { name, takes_args })
        }
        _ => Err((name.span(), "the main task cannot be generic")),
    }
}

/// Number of parameters in a parameter list: pieces between commas outside angle brackets.
fn parameters(group: &Group) -> usize {
    let (mut count, mut open, mut depth) = (0, false, 0);
    for token in group.stream() {
        if let TokenTree::Punct(p) = &token {
            match p.as_char() {
                '<' => depth += 1,
                '>' => depth -= 1,
                ',' if depth == 0 => {
                    open = false;
                    continue;
                }
                _ => {}
            }
        }
        count += usize::from(!open);
        open = true;
    }
    count
}

/// Puts the names in. The name of the function keeps its place in the source, so that a type
/// error is shown there.
fn fill(tokens: TokenStream, name: &Ident, call: &str) -> TokenStream {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(word) if word.to_string() == "MAIN" => TokenTree::Ident(name.clone()),
            TokenTree::Ident(word) if word.to_string() == "CALL" => {
                TokenTree::Ident(Ident::new(call, name.span()))
            }
            TokenTree::Group(group) => {
                let mut filled = Group::new(group.delimiter(), fill(group.stream(), name, call));
                filled.set_span(group.span());
                TokenTree::Group(filled)
            }
            other => other,
        })
        .collect()
}

/// The item, so that nothing else breaks, and a compile error at `span`.
fn error(span: Span, message: &str, item: TokenStream) -> TokenStream {
    let error: TokenStream = format!("::core::compile_error!({message:?});")
        .parse()
        .unwrap_or_default();
    let mut out = item;
    out.extend(error.into_iter().map(|mut token| {
        token.set_span(span);
        token
    }));
    out
}
