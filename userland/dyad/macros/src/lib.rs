//! The attributes of Dyad programs. `#[dyad::task]` makes an async function the program's main task,
//! `#[dyad::main]` a plain one its main function, [`isa`](macro@isa) a function one that runs on one ISA only.
//!
//! The first two keep the function as it is and add the entry symbol that kernels call (on the host, a C
//! `main` that runs the program in the emulated system). Use them as `dyad::task`; the crate
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

/// What is added for a plain main function. Routines of the build pipeline call these.
const PLAIN: &str = r#"
    const _: () = {
        #[cfg(target_os = "none")]
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn _dyad_start(argument: u64) -> ! {
            if ::dyad::rt::plain::comes(argument) {
                ::dyad::rt::plain::arrive(argument)
            }
            ::dyad::rt::plain::start(argument)
        }

        #[cfg(target_os = "none")]
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn dyad_spine_root(argument: u64) -> u64 {
            ::dyad::rt::plain::CALL(argument, MAIN)
        }

        #[cfg(target_os = "none")]
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn dyad_spine_leave(frame: u64, back: u64) {
            ::dyad::rt::plain::leave(frame, back)
        }

        #[cfg(target_os = "none")]
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        extern "C" fn dyad_spine_done(code: u64) -> ! {
            ::dyad::rt::plain::done(code)
        }

        #[cfg(not(target_os = "none"))]
        fn start(argument: u64) -> ! {
            ::dyad::rt::plain::done(::dyad::rt::plain::CALL(argument, MAIN))
        }

        #[cfg(not(target_os = "none"))]
        #[allow(unsafe_code)]
        #[unsafe(export_name = "main")]
        extern "C" fn host_main(_argc: i32, _argv: *const *const u8) -> i32 {
            ::dyad::rt::host_main(start)
        }
    };
"#;

/// What is added for points at system calls: the build looks for it.
const SYSCALLS: &str = r#"
    const _: () = {
        #[cfg(target_os = "none")]
        #[allow(unsafe_code, non_upper_case_globals)]
        #[used]
        #[unsafe(no_mangle)]
        static dyad_points_syscalls: u8 = 1;
    };
"#;

/// What is put before a function that has points in its loops: the build looks for the section. It could
/// not be found any more within another function.
const LOOPS: &str = r#"
    #[cfg_attr(target_os = "none", inline(never))]
    #[allow(unsafe_code)]
    #[cfg_attr(target_os = "none", unsafe(link_section = ".text.points_loops"))]
"#;

/// Marks the main function of a program whose threads change their ISA inside of plain functions:
/// `fn main()` or `fn main(args: Args)`, returning nothing or `Result<()>`.
///
/// With `#[dyad::main(points = "syscalls")]`, every system call of the program is a migration point, those
/// that the runtime makes for it included.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    const WHAT: &str =
        "#[dyad::main] goes on the main function: `fn main(args: Args) -> Result<()>`";
    let words: Vec<TokenTree> = arguments.into_iter().collect();
    let text: Vec<String> = words.iter().map(TokenTree::to_string).collect();
    let text: Vec<&str> = text.iter().map(String::as_str).collect();
    let plain = match (words.first(), text.as_slice()) {
        (None, _) => PLAIN.to_owned(),
        (_, ["points", "=", "\"syscalls\""]) => format!("{PLAIN}{SYSCALLS}"),
        (Some(first), _) => {
            const ONLY: &str = "#[dyad::main] takes nothing, or points = \"syscalls\"";
            return error(first.span(), ONLY, item);
        }
    };
    let added = inspect(&item, WHAT).and_then(|main| match main.is_async {
        true => Err((
            main.name.span(),
            "the main function must be a plain one: for an async one, use #[dyad::task]",
        )),
        false => Ok(fill_in(&plain, &main)),
    });
    finish(item, added)
}

/// The item, with what is added or with an error.
fn finish(item: TokenStream, added: Result<TokenStream, (Span, &'static str)>) -> TokenStream {
    match added {
        Ok(added) => {
            let mut out = item;
            out.extend(added);
            out
        }
        Err((span, message)) => error(span, message, item),
    }
}

fn fill_in(text: &str, main: &Main) -> TokenStream {
    let call = match main.takes_args {
        true => "main_with_args",
        false => "main_without_args",
    };
    // The text is a constant; it parses.
    let text: TokenStream = text.parse().unwrap_or_default();
    fill(text, &main.name, call)
}

/// Marks the main task: `async fn main()` or `async fn main(args: Args)`, returning nothing or
/// `Result<()>`.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if let Some(first) = arguments.into_iter().next() {
        return error(first.span(), "#[dyad::task] takes no arguments", item);
    }
    const WHAT: &str =
        "#[dyad::task] goes on the main task: `async fn main(args: Args) -> Result<()>`";
    let added = inspect(&item, WHAT).and_then(|main| match main.is_async {
        false => Err((
            main.name.span(),
            "the main task must be async: write `async fn`, or use #[dyad::main]",
        )),
        true => Ok(fill_in(ENTRY, &main)),
    });
    finish(item, added)
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

/// Gives a function migration points: `#[dyad::points(loops)]` makes one at the head of each of its loops,
/// as the optimiser leaves them, those of iterators that it uses included. In programs with
/// [`main`](macro@main).
///
/// The function is not inlined. Its closures are functions of their own unless they are inlined into it.
#[proc_macro_attribute]
pub fn points(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let words: Vec<TokenTree> = arguments.into_iter().collect();
    let text: Vec<String> = words.iter().map(TokenTree::to_string).collect();
    let added = match text.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["loops"] => points_in(&item),
        _ => {
            let span = words.first().map_or_else(Span::call_site, TokenTree::span);
            Err((span, "say where the points are: #[dyad::points(loops)]"))
        }
    };
    match added {
        Ok(()) => {
            // The text is a constant; it parses.
            let mut out: TokenStream = LOOPS.parse().unwrap_or_default();
            out.extend(item);
            out
        }
        Err((span, message)) => error(span, message, item),
    }
}

/// Whether an item can have points.
fn points_in(item: &TokenStream) -> Result<(), (Span, &'static str)> {
    const WHAT: &str = "#[dyad::points(loops)] goes on a plain function";
    let mut last = Span::call_site();
    for token in item.clone() {
        last = token.span();
        match &token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "fn" => return Ok(()),
                "pub" | "unsafe" => {}
                "async" => {
                    let message = "an async function migrates where it awaits: dyad::task::migrate(isa).await";
                    return Err((last, message));
                }
                _ => return Err((last, WHAT)),
            },
            TokenTree::Punct(p) if p.as_char() == '#' => {}
            TokenTree::Group(_) => {}
            _ => return Err((last, WHAT)),
        }
    }
    Err((last, WHAT))
}

struct Main {
    name: Ident,
    takes_args: bool,
    is_async: bool,
}

/// Reads as much of a function's signature as decides which entry it gets; the compiler checks
/// the types.
fn inspect(item: &TokenStream, what: &'static str) -> Result<Main, (Span, &'static str)> {
    let mut tokens = item.clone().into_iter().peekable();
    let mut is_async = false;
    let mut last = Span::call_site();
    // Attributes, visibility and qualifiers come before `fn`.
    loop {
        let Some(token) = tokens.next() else {
            return Err((last, what));
        };
        last = token.span();
        match &token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "fn" => break,
                "async" => is_async = true,
                "pub" => {}
                "unsafe" | "extern" | "const" => {
                    return Err((
                        last,
                        "the main function is neither unsafe, extern nor const",
                    ));
                }
                _ => return Err((last, what)),
            },
            TokenTree::Punct(p) if p.as_char() == '#' => {}
            TokenTree::Group(_) => {}
            _ => return Err((last, what)),
        }
    }
    let Some(TokenTree::Ident(name)) = tokens.next() else {
        return Err((last, what));
    };
    match tokens.next() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            let takes_args = match parameters(&group) {
                0 => false,
                1 => true,
                _ => {
                    let message = "the main function takes nothing or one parameter, `args: Args`";
                    return Err((group.span(), message));
                }
            };
            Ok(Main {
                name,
                takes_args,
                is_async,
            })
        }
        _ => Err((name.span(), "the main function cannot be generic")),
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
