//! Types of the values that instructions make.

use crate::llvm::{Header, Kind, Lexed, parts, prefix};

/// The type of the value that an instruction makes; none if the instruction is not known here.
pub(super) fn result(l: &Lexed<'_>) -> Option<String> {
    let op = 2;
    let mut at = op + 1;
    let word = l.text(op);
    // What an instruction says of itself, before the first type.
    const SAID: [&str; 24] = [
        "nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "inbounds", "nusw", "volatile",
        "atomic", "weak", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast",
        "inrange", "tail", "notail", "musttail", "call",
    ];
    let said = |i: usize| SAID.iter().any(|w| l.is_word(i, w));
    let typed = |i: usize| Some((l.span(i, l.past_type(i)?), l.past_type(i)?));
    // `{2 x }`, if a type is a vector: comparisons and pointers into vectors give vectors.
    let like =
        |ty: &str, element: &str| match ty.strip_prefix('<').and_then(|v| v.split_once(" x ")) {
            Some((count, _)) if !ty.starts_with("<{") => format!("<{count} x {element}>"),
            _ => element.to_owned(),
        };
    Some(match word {
        "call" | "tail" | "notail" | "musttail" => {
            let call = (op..l.tokens.len()).find(|i| l.is_word(*i, "call"))?;
            let p = prefix(l, call + 1)?;
            l.span(p.result, p.end).to_owned()
        }
        "alloca" => "ptr".to_owned(),
        "icmp" | "fcmp" => {
            while said(at) {
                at += 1;
            }
            like(typed(at + 1)?.0, "i1")
        }
        "trunc" | "zext" | "sext" | "fptrunc" | "fpext" | "fptoui" | "fptosi" | "uitofp"
        | "sitofp" | "ptrtoint" | "inttoptr" | "bitcast" | "addrspacecast" | "ptrtoaddr" => {
            let to = (at..l.tokens.len()).find(|i| l.is_word(*i, "to"))?;
            typed(to + 1)?.0.to_owned()
        }
        "getelementptr" => {
            let operands = parts(l, at..l.tokens.len());
            let vector = operands.iter().skip(1).find_map(|p| {
                let ty = typed(p.start)?.0;
                (ty.starts_with('<')).then_some(ty)
            });
            vector.map_or_else(|| "ptr".to_owned(), |ty| like(ty, "ptr"))
        }
        "select" => {
            let operands = parts(l, at..l.tokens.len());
            typed(operands.get(1)?.start)?.0.to_owned()
        }
        "extractvalue" => {
            let (ty, _) = typed(at)?;
            let indices = parts(l, at..l.tokens.len());
            let indices = indices
                .iter()
                .skip(1)
                .map_while(|p| l.text(p.start).parse().ok());
            member(ty, &indices.collect::<Vec<usize>>())?
        }
        "extractelement" => {
            let (ty, _) = typed(at)?;
            let element = ty
                .strip_prefix('<')?
                .strip_suffix('>')?
                .split_once(" x ")?
                .1;
            element.to_owned()
        }
        "shufflevector" => {
            let operands = parts(l, at..l.tokens.len());
            let (ty, mask) = (
                typed(operands.first()?.start)?.0,
                typed(operands.get(2)?.start)?.0,
            );
            let element = ty
                .strip_prefix('<')?
                .strip_suffix('>')?
                .split_once(" x ")?
                .1;
            like(mask, element)
        }
        "atomicrmw" => {
            while said(at) {
                at += 1;
            }
            let operands = parts(l, at..l.tokens.len());
            typed(operands.get(1)?.start)?.0.to_owned()
        }
        "cmpxchg" => {
            while said(at) {
                at += 1;
            }
            let operands = parts(l, at..l.tokens.len());
            format!("{{ {}, i1 }}", typed(operands.get(1)?.start)?.0)
        }
        "add" | "sub" | "mul" | "udiv" | "sdiv" | "urem" | "srem" | "shl" | "lshr" | "ashr"
        | "and" | "or" | "xor" | "fadd" | "fsub" | "fmul" | "fdiv" | "frem" | "fneg" | "load"
        | "phi" | "freeze" | "insertvalue" | "insertelement" => {
            while said(at) {
                at += 1;
            }
            typed(at)?.0.to_owned()
        }
        _ => return None,
    })
}

/// The type of a member of an aggregate.
fn member(ty: &str, indices: &[usize]) -> Option<String> {
    let Some((first, rest)) = indices.split_first() else {
        return Some(ty.to_owned());
    };
    let l = crate::llvm::lex(ty).ok()?;
    let end = l.tokens.len() - 1;
    let (from, to) = match l.kind(0)? {
        Kind::Mark(b'[') => (3, end),
        Kind::Mark(b'{') => {
            let fields = parts(&l, 1..end);
            let field = fields.get(*first)?;
            (field.start, field.end)
        }
        Kind::Mark(b'<') if l.is_mark(1, b'{') => {
            let fields = parts(&l, 2..end - 1);
            let field = fields.get(*first)?;
            (field.start, field.end)
        }
        _ => return None,
    };
    member(l.span(from, to), rest)
}

/// The type of an argument of the function with this header; none if it has none of that name.
pub(super) fn argument(header: &Lexed<'_>, name: &str) -> Option<String> {
    let h = Header::read(header)?;
    let all = parts(header, h.parameters).into_iter();
    let mut named = all.filter(|p| header.name(p.end - 1) == name);
    let part = named.next()?;
    Some(
        header
            .span(part.start, header.past_type(part.start)?)
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llvm::lex;

    #[test]
    fn instructions_have_the_types_that_they_make() {
        for (line, ty) in [
            ("%x = add nuw nsw i64 %a, 1", "i64"),
            ("%x = icmp samesign ult i8 %a, 3", "i1"),
            ("%x = fcmp olt <2 x double> %a, %b", "<2 x i1>"),
            (
                "%x = tail call noundef range(i8 0, 3) { i64, i1 } @f(i64 1), !dbg !3",
                "{ i64, i1 }",
            ),
            ("%x = notail call preserve_nonecc ptr %f(ptr %y)", "ptr"),
            ("%x = zext nneg i8 %a to i64, !dbg !3", "i64"),
            ("%x = bitcast <2 x i64> %a to <4 x i32>", "<4 x i32>"),
            ("%x = getelementptr inbounds nuw i8, ptr %a, i64 8", "ptr"),
            ("%x = getelementptr i8, ptr %a, <2 x i64> %b", "<2 x ptr>"),
            ("%x = select i1 %c, double %a, double 0.0", "double"),
            (
                "%x = extractvalue { i64, { ptr, i1 } } %a, 1, 0, !dbg !4",
                "ptr",
            ),
            ("%x = extractvalue [2 x <{ i8, i64 }>] %a, 1, 1", "i64"),
            (
                "%x = insertvalue { i64, i1 } poison, i64 %a, 0",
                "{ i64, i1 }",
            ),
            ("%x = extractelement <4 x float> %a, i64 0", "float"),
            (
                "%x = insertelement <4 x float> %a, float %b, i64 0",
                "<4 x float>",
            ),
            (
                "%x = shufflevector <2 x i64> %a, <2 x i64> %b, <4 x i32> zeroinitializer",
                "<4 x i64>",
            ),
            (
                "%x = load atomic volatile i64, ptr %a monotonic, align 8",
                "i64",
            ),
            (
                "%x = atomicrmw volatile add ptr %a, i64 1 seq_cst, align 8",
                "i64",
            ),
            (
                "%x = cmpxchg weak ptr %a, i32 1, i32 2 acquire monotonic, align 4",
                "{ i32, i1 }",
            ),
            ("%x = phi fast float [ 0.0, %a ], [ %y, %b ]", "float"),
            ("%x = freeze i1 %a", "i1"),
            ("%x = fneg double %a", "double"),
        ] {
            assert_eq!(result(&lex(line).unwrap()).as_deref(), Some(ty), "{line}");
        }
        assert_eq!(result(&lex("%x = frob i64 %a").unwrap()), None);
        let header =
            lex("define internal { i64, i1 } @f(ptr align 8 %a, [2 x i64] %1) #3 {").unwrap();
        assert_eq!(argument(&header, "1").as_deref(), Some("[2 x i64]"));
        assert_eq!(argument(&header, "f"), None);
    }
}
