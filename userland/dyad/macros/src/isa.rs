//! `#[dyad::isa(..)]`: puts a function into the window of an ISA, and has the compiler check that what it
//! takes and returns can cross.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

const WHAT: &str = "#[dyad::isa(..)] goes on a function: `extern \"C\" fn f(a: u64, b: &T) -> u64`";

type Refused = (Span, &'static str);

/// What is put before the function.
const BEFORE: &str = r#"
    #[inline(never)]
    #[allow(unsafe_code)]
    #[cfg_attr(target_os = "none", unsafe(link_section = "SECTION"))]
"#;

/// What is put behind it: the checks of the types; its address, so that nothing that optimises changes how it is
/// called; and which arguments, and whether the result, are floating-point numbers, as the front end's target passes them
/// as integers.
const BEHIND: &str = r#"
    const _: () = {
        #[allow(non_snake_case, dead_code)]
        fn arguments_and_result_cross() {
            CHECKS
        }
        #[cfg(target_os = "none")]
        #[used]
        static ADDRESS: UNSAFE extern "C" fn(LIST) -> R = NAME;
        #[cfg(target_os = "none")]
        #[used]
        static KINDS: [u8; KINDS_LEN] = [KINDS_LIST];
    };
"#;

struct Function {
    name: Ident,
    is_unsafe: bool,
    arguments: Vec<TokenStream>,
    result: TokenStream,
}

/// The function with what it needs.
pub fn expand(arguments: TokenStream, item: &TokenStream) -> Result<TokenStream, Refused> {
    let section = section(arguments)?;
    let function = inspect(item)?;
    let before = BEFORE.replace("SECTION", &section);
    let mut out: TokenStream = before.parse().unwrap_or_default();
    out.extend(item.clone());
    let mut checks = String::new();
    let count = function.arguments.len();
    // No trait can be implemented for pointers to functions that take references.
    let checked: Vec<usize> = (0..count)
        .filter(|i| !is_function_pointer(&function.arguments[*i]))
        .collect();
    for i in &checked {
        checks.push_str(&format!("::dyad::crossing::crosses::<T{i}>();"));
    }
    let floats: Vec<_> = checked
        .iter()
        .map(|i| format!("<T{i} as ::dyad::crossing::Crosses>::FLOAT as usize"))
        .collect();
    let sum = match floats.is_empty() {
        true => "0".to_owned(),
        false => floats.join(" + "),
    };
    checks.push_str(&format!(
        "const {{ ::dyad::crossing::fits({count}, {sum}) }}; ::dyad::crossing::comes_back::<R>();"
    ));
    let kinds: Vec<_> = (0..count)
        .map(|i| match checked.contains(&i) {
            true => format!("::dyad::crossing::kind(<T{i} as ::dyad::crossing::Crosses>::FLOAT), "),
            false => "::dyad::crossing::kind(false), ".to_owned(),
        })
        .chain(["::dyad::crossing::kind(<R as ::dyad::crossing::ComesBack>::FLOAT)".to_owned()])
        .collect();
    let list: Vec<_> = (0..count).map(|i| format!("T{i}")).collect();
    let behind = BEHIND
        .replace("CHECKS", &checks)
        .replace("KINDS_LEN", &(count + 1).to_string())
        .replace("KINDS_LIST", &kinds.concat())
        .replace("LIST", &list.join(", "))
        .replace("UNSAFE", if function.is_unsafe { "unsafe" } else { "" });
    let behind: TokenStream = behind.parse().unwrap_or_default();
    out.extend(fill(behind, &function));
    Ok(out)
}

/// The section that says which ISA, and whether the function is always to run there.
fn section(arguments: TokenStream) -> Result<String, Refused> {
    let tokens: Vec<_> = arguments.into_iter().collect();
    let span = tokens.first().map_or_else(Span::call_site, TokenTree::span);
    const WHICH: &str = "say which ISA: #[dyad::isa(aarch64)] or #[dyad::isa(x86_64)]";
    const WHAT_ELSE: &str = "after the ISA there can be `always`, for a function that crosses \
                             whatever the policy is: #[dyad::isa(aarch64, always)]";
    let words: Vec<_> = tokens.iter().map(ToString::to_string).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [isa @ ("aarch64" | "x86_64")] => Ok(format!(".text.only_{isa}")),
        ["aarch64" | "x86_64", ",", "always"] => Ok(format!(".text.only_{}..always", words[0])),
        ["aarch64" | "x86_64", ..] => Err((tokens[1].span(), WHAT_ELSE)),
        _ => Err((span, WHICH)),
    }
}

/// Reads the signature.
fn inspect(item: &TokenStream) -> Result<Function, Refused> {
    let mut tokens = item.clone().into_iter().peekable();
    let mut last = Span::call_site();
    let (mut convention, mut is_unsafe) = (None, false);
    loop {
        let token = tokens.next().ok_or((last, WHAT))?;
        last = token.span();
        match &token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "fn" => break,
                "async" => return Err((last, "a function that crosses cannot be async")),
                "const" => return Err((last, "a function that crosses cannot be const")),
                "extern" => convention = Some(String::new()),
                "unsafe" => is_unsafe = true,
                "pub" => {}
                _ => return Err((last, WHAT)),
            },
            TokenTree::Literal(text) if convention.is_some() => convention = Some(text.to_string()),
            TokenTree::Punct(p) if p.as_char() == '#' => {}
            TokenTree::Group(_) => {}
            _ => return Err((last, WHAT)),
        }
    }
    let Some(TokenTree::Ident(name)) = tokens.next() else {
        return Err((last, WHAT));
    };
    if convention.as_deref() != Some("\"C\"") {
        return Err((name.span(), "a function that crosses is `extern \"C\"`"));
    }
    let list = match tokens.next() {
        Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis => g,
        _ => return Err((name.span(), "a function that crosses cannot be generic")),
    };
    let arguments = types(&list)?;
    let mut result = TokenStream::new();
    let arrow = matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == '-');
    if arrow {
        tokens.next();
        tokens.next();
        for token in tokens {
            match &token {
                TokenTree::Group(g) if g.delimiter() == Delimiter::Brace => break,
                TokenTree::Ident(word) if word.to_string() == "where" => {
                    return Err((word.span(), "a function that crosses cannot be generic"));
                }
                _ => result.extend([token]),
            }
        }
    } else {
        result.extend([TokenTree::Group(Group::new(
            Delimiter::Parenthesis,
            TokenStream::new(),
        ))]);
    }
    Ok(Function {
        name,
        is_unsafe,
        arguments,
        result,
    })
}

/// Whether a type says of itself that it is a pointer to a function of the C convention.
fn is_function_pointer(ty: &TokenStream) -> bool {
    let mut words = ty.clone().into_iter().map(|t| t.to_string()).peekable();
    if words.next_if(|w| w == "for").is_some() {
        // Only lifetimes are between the brackets.
        while words.next().is_some_and(|w| w != ">") {}
    }
    words.next_if(|w| w == "unsafe");
    words.next().as_deref() == Some("extern")
        && words.next().as_deref() == Some("\"C\"")
        && words.next().as_deref() == Some("fn")
}

/// The types of a list of parameters.
fn types(list: &Group) -> Result<Vec<TokenStream>, Refused> {
    let mut all = Vec::new();
    let (mut ty, mut colon, mut depth) = (TokenStream::new(), false, 0);
    let mut dash = false;
    for token in list.stream() {
        if let TokenTree::Ident(word) = &token {
            match word.to_string().as_str() {
                "self" => return Err((word.span(), "a function that crosses is no method")),
                "impl" => {
                    return Err((word.span(), "a function that crosses cannot be generic"));
                }
                _ => {}
            }
        }
        if let TokenTree::Punct(p) = &token {
            match p.as_char() {
                '<' => depth += 1,
                '>' if !dash => depth -= 1,
                ',' if depth == 0 => {
                    all.push(core::mem::take(&mut ty));
                    colon = false;
                    continue;
                }
                ':' if !colon => {
                    colon = true;
                    continue;
                }
                _ => {}
            }
            dash = p.as_char() == '-';
        } else {
            dash = false;
        }
        if colon {
            ty.extend([token]);
        }
    }
    if !ty.is_empty() {
        all.push(ty);
    }
    Ok(all)
}

/// Puts name and types in. They keep their places in the source, so that errors are shown there.
fn fill(tokens: TokenStream, function: &Function) -> TokenStream {
    let mut out = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                let text = word.to_string();
                let number = text.strip_prefix('T').and_then(|n| n.parse::<usize>().ok());
                match (
                    text.as_str(),
                    number.and_then(|n| function.arguments.get(n)),
                ) {
                    (_, Some(ty)) => out.extend(ty.clone()),
                    ("R", _) => out.extend(function.result.clone()),
                    ("NAME", _) => out.extend([TokenTree::Ident(function.name.clone())]),
                    _ => out.extend([TokenTree::Ident(word)]),
                }
            }
            TokenTree::Group(group) => {
                let mut filled = Group::new(group.delimiter(), fill(group.stream(), function));
                filled.set_span(group.span());
                out.extend([TokenTree::Group(filled)]);
            }
            other => out.extend([other]),
        }
    }
    out
}
