//! The spine pass on small modules: what it refuses, and what it makes of the rest.

use crate::common;

use common::{migrating as module, neutral, scratch};
use migrate_rt::spine::{MAX_FRAME, Odd, Refused, Spine, SpineError, transform};

fn run(name: &str, body: &str) -> Result<Option<Spine>, SpineError> {
    transform(&neutral(body), &scratch(&format!("spine-{name}")))
}

fn made(name: &str, body: &str) -> Spine {
    run(name, body).unwrap_or_else(|e| panic!("{e}")).unwrap()
}

fn refused(name: &str, body: &str) -> Vec<(String, Option<String>, Refused)> {
    match run(name, body) {
        Err(e @ SpineError::Refused(_)) => {
            // Whatever is refused says what to do about it.
            assert!(e.to_string().contains("do: "), "{e}");
            let SpineError::Refused(all) = e else {
                unreachable!()
            };
            all.into_iter()
                .map(|r| (r.function, r.source.map(|s| s.to_string()), r.what))
                .collect()
        }
        Err(other) => panic!("{name}: {other}"),
        Ok(_) => panic!("{name}: it was accepted"),
    }
}

#[test]
fn what_cannot_be_on_the_stack_is_refused_with_its_place() {
    let line = Some("/app/src/main.rs:42".to_owned());
    // Local variables have no line of their own: the function's is named.
    let header = Some("/app/src/main.rs:40".to_owned());
    let cases: [(&str, &str, Option<String>, Refused); 7] = [
        (
            "dynamic",
            "define internal void @work(i64 %n) !dbg !4 {\nstart:\n  %a = alloca i8, i64 %n, align 1, !dbg !6\n\
             call void @dyad_migrate_point(), !dbg !6\n  call void @use(ptr %a), !dbg !6\n  ret void\n}",
            line.clone(),
            Refused::DynamicSize,
        ),
        (
            "later",
            "define internal void @work(i64 %n) !dbg !4 {\nstart:\n  br label %b\nb:\n  %a = alloca i64, align 8, !dbg !6\n\
             call void @dyad_migrate_point(), !dbg !6\n  call void @use(ptr %a), !dbg !6\n  ret void\n}",
            line.clone(),
            Refused::DynamicSize,
        ),
        (
            "aligned",
            "define internal void @work(i64 %n) !dbg !4 {\nstart:\n  %a = alloca [64 x i8], align 64\n\
             call void @dyad_migrate_point()\n  call void @use(ptr %a)\n  ret void\n}",
            header.clone(),
            Refused::Alignment(64),
        ),
        (
            "large",
            "define internal void @work(i64 %n) !dbg !4 {\nstart:\n  %a = alloca [300000 x i8], align 8\n\
             call void @dyad_migrate_point()\n  call void @use(ptr %a)\n  ret void\n}",
            header,
            Refused::Large(300_000),
        ),
        (
            "copied",
            "define internal void @by(ptr byval([32 x i8]) %p) {\nstart:\n  call void @dyad_migrate_point()\n  ret void\n}\n\
             define internal void @work(i64 %n) !dbg !4 {\nstart:\n  %a = alloca [32 x i8], align 8\n\
             call void @by(ptr byval([32 x i8]) %a), !dbg !6\n  ret void\n}",
            line.clone(),
            Refused::Odd(Odd::ByValue),
        ),
        (
            "varargs",
            "define internal void @va(i64 %x, ...) {\nstart:\n  call void @dyad_migrate_point()\n  ret void\n}\n\
             define internal void @work(i64 %n) !dbg !4 {\nstart:\n\
             call void (i64, ...) @va(i64 %n, i64 1), !dbg !6\n  ret void\n}",
            line.clone(),
            Refused::Odd(Odd::Varargs),
        ),
        (
            "must_tail",
            "define internal void @work(i64 %n) !dbg !4 {\nstart:\n  %b = call i64 @plain(i64 %n)\n\
             call void @dyad_migrate_point()\n  musttail call void @work(i64 %b), !dbg !6\n  ret void\n}",
            line,
            Refused::MustTail,
        ),
    ];
    for (name, work, source, what) in cases {
        let found = refused(name, &module(work));
        let same = |(f, s, w): &(String, Option<String>, Refused)| {
            f == "work" && (s, w) == (&source, &what)
        };
        assert!(found.iter().any(same), "{name}: {found:?}");
    }
    const { assert!(MAX_FRAME < 300_000) }
}

/// What hides a value from the optimiser is nothing on the machine, so that it may be where threads migrate.
#[test]
fn barriers_for_the_optimiser_are_on_the_spine() {
    for (n, barrier) in ["\"\", \"=r,0\"", "\"/* ${0} */\", \"=r,0\""]
        .iter()
        .enumerate()
    {
        let body = format!(
            "define internal void @work(i64 %n) !dbg !4 {{\nstart:\n  call void @dyad_migrate_point(), !dbg !6\n  \
             %b = call i64 asm {barrier}(i64 %n), !dbg !6\n  call void @used(i64 %b), !dbg !6\n  ret void\n}}\n\
             declare void @used(i64)"
        );
        made(&format!("barrier-{n}"), &module(&body));
    }
}

#[test]
fn what_is_entered_from_outside_is_no_part_of_the_spine() {
    let work = "define internal void @work(i64 %n) {\nstart:\n  call void @dyad_migrate_point()\n  ret void\n}";
    let exported = format!(
        "{work}\ndefine void @dyad_invoked(i64 %x) {{\nstart:\n  call void @work(i64 %x)\n  ret void\n}}"
    );
    let spine = made("exported", &module(&exported));
    assert_eq!(spine.functions, ["dyad_spine_root", "work"]);
    assert_eq!(spine.sites.len(), 2);
    let entry = "define void @dyad_invoked(i64 %x)";
    assert!(spine.ir.text().contains(entry) && spine.ir.text().matches(", i32 0)").count() == 2);

    // A call through a pointer that reaches it cannot know its convention.
    let taken =
        format!("{exported}\n@t = internal global [2 x ptr] [ptr @dyad_invoked, ptr @work]");
    let found = refused("taken", &module(&taken));
    assert_eq!(found, [("dyad_invoked".to_owned(), None, Refused::Entry)]);

    let used = format!("{work}\n@p = internal global ptr @dyad_spine_root");
    assert_eq!(refused("root", &module(&used))[0].2, Refused::RootUsed);

    let alias = format!("{work}\n@other = internal alias void (i64), ptr @work");
    assert_eq!(refused("alias", &module(&alias))[0].2, Refused::Alias);
}

/// A thread that has come from the other ISA cannot leave a function that runs on this one only.
#[test]
fn functions_of_one_isa_are_no_part_of_the_spine() {
    let only = |body: &str| {
        format!(
            "define internal i64 @there(i64 %x) section \".text.only_x86_64.there\" !dbg !4 {{\nstart:\n  {body}\n  ret i64 %x\n}}\n\
             @_RNv1_7ADDRESS = internal constant ptr @there\n\
             define internal void @work(i64 %n) {{\nstart:\n  %a = call i64 @there(i64 %n)\n\
             call void @dyad_migrate_point()\n  ret void\n}}\n"
        )
    };
    let calls = only("%y = call i64 @plain(i64 %x)");
    assert_eq!(
        made("only", &module(&calls)).functions,
        ["dyad_spine_root", "work"]
    );
    // That its address is kept is no reason to count it among others of its signature, a table is.
    let other = "define internal i64 @mover(i64 %x) {\nstart:\n  call void @dyad_migrate_point()\n  ret i64 %x\n}\n";
    let shared = format!("{calls}{other}@t = internal global [1 x ptr] [ptr @mover]\n");
    assert!(made("kept", &module(&shared)).functions.len() == 3);
    let place = Some("/app/src/main.rs:40".to_owned());
    let table = format!("{calls}{other}@t = internal global [2 x ptr] [ptr @mover, ptr @there]\n");
    assert_eq!(
        refused("table", &module(&table)),
        [("there".to_owned(), place.clone(), Refused::Entry)]
    );
    for (name, body) in [
        ("direct", "call void @dyad_migrate_point()"),
        ("below", "call void @work(i64 0)"),
    ] {
        assert_eq!(
            refused(name, &module(&only(body))),
            [("there".to_owned(), place.clone(), Refused::OneIsa)],
            "{name}"
        );
    }
}

/// A point at the head of each loop, also where one loop is in another, and nothing else is slowed down.
#[test]
fn loops_have_points_where_it_is_asked_for() {
    let work = |section: &str| {
        format!(
            "define internal void @work(i64 %n) {section}!dbg !4 {{\nstart:\n  br label %outer\n\
             outer:\n  %i = phi i64 [ 0, %start ], [ %i2, %end ]\n  br label %inner\n\
             inner:\n  %j = phi i64 [ %i, %outer ], [ %j2, %inner ]\n  %j2 = call i64 @plain(i64 %j), !dbg !6\n\
             %c = icmp ult i64 %j2, 100\n  br i1 %c, label %inner, label %end\n\
             end:\n  %i2 = add i64 %i, %j2\n  %d = icmp ult i64 %i2, %n\n  br i1 %d, label %outer, label %out\n\
             out:\n  ret void\n}}\n"
        )
    };
    let marked = "section \".text.points_loops\" ";
    let spine = made("loops", &module(&work(marked)));
    assert_eq!(spine.functions, ["dyad_spine_root", "work"]);
    let of_work: Vec<_> = spine
        .sites
        .iter()
        .filter(|s| s.function == "work")
        .collect();
    assert_eq!(of_work.len(), 2, "{of_work:?}");
    let place = of_work[1].source.as_ref().map(|s| s.to_string());
    assert_eq!(place.as_deref(), Some("/app/src/main.rs:42"));
    let text = spine.ir.text();
    assert!(!text.contains("points_loops"), "{text}");
    // What goes round stays in registers where nobody asks for a move.
    let start = text.find("inner:").unwrap();
    let body = &text[start..start + text[start..].find("points.go").unwrap()];
    assert!(
        body.contains("= phi i64") && !body.contains("store"),
        "{body}"
    );
    assert_eq!(
        made("unmarked", &module(&work(""))).functions,
        ["dyad_spine_root"]
    );

    let outside = work(marked).replace("internal void @work", "void @work");
    assert_eq!(
        refused("loops-outside", &module(&outside)),
        [(
            "work".to_owned(),
            Some("/app/src/main.rs:40".to_owned()),
            Refused::PointsOutside
        )]
    );
    let task = work(marked)
        .replace("!dbg !4 ", "")
        .replace(", !dbg !6", "");
    let task = format!("{task}declare i64 @plain(i64)\n");
    assert_eq!(
        refused("loops-task", &task),
        [("work".to_owned(), None, Refused::NoRoot)]
    );
}

/// A point before each system call, if the program asks for that.
#[test]
fn system_calls_are_points_where_it_is_asked_for() {
    let work = "define internal void @work(i64 %n) !dbg !4 {\nstart:\n\
                %a = call i64 @dyad_invoke(i64 %n, i64 0, i64 0, i64 0, i64 0, ptr null), !dbg !6\n\
                %b = call { i64, i64 } @dyad_request(i64 %a, i64 0, i64 0, i64 0, i64 0), !dbg !6\n\
                %c = call i64 @dyad_isa()\n  ret void\n}\n\
                define void @dyad_invoked(i64 %x) {\nstart:\n\
                %b = call { i64, i64 } @dyad_request(i64 %x, i64 0, i64 0, i64 0, i64 0)\n  ret void\n}\n\
                declare i64 @dyad_invoke(i64, i64, i64, i64, i64, ptr)\ndeclare i64 @dyad_isa()\n\
                declare { i64, i64 } @dyad_request(i64, i64, i64, i64, i64)\n";
    assert!(made("quiet", &module(work)).sites.is_empty());
    let asked = format!("{work}@dyad_points_syscalls = constant i8 1\n");
    let spine = made("syscalls", &module(&asked));
    let made: Vec<_> = spine
        .sites
        .iter()
        .map(|s| {
            let place = s.source.as_ref().map(|s| s.to_string());
            (s.function.as_str(), place)
        })
        .collect();
    let line = || Some("/app/src/main.rs:42".to_owned());
    assert_eq!(
        made,
        [
            ("dyad_spine_root", None),
            ("work", line()),
            ("work", line())
        ]
    );
    assert!(spine.ir.text().contains("load atomic i64, ptr %"));
}

#[test]
fn a_program_of_tasks_is_left_alone_and_must_not_ask_for_more() {
    let task = "define void @_dyad_start(i64 %x) {\n  ret void\n}\n";
    assert!(run("task", task).unwrap().is_none());
    let calls = format!(
        "{task}declare void @dyad_migrate_point()\ndefine void @f() {{\n  call void @dyad_migrate_point()\n  ret void\n}}"
    );
    assert_eq!(refused("calls", &calls)[0].2, Refused::NoRoot);
}

#[test]
fn what_the_pass_does_not_understand_is_an_error() {
    for bad in [
        "%v = va_arg ptr null, i64",
        "indirectbr ptr null, [label %start]",
        "frob ^",
    ] {
        let work =
            format!("define internal void @work(i64 %n) {{\nstart:\n  {bad}\n  ret void\n}}");
        let e = run("bad", &module(&work)).unwrap_err();
        let SpineError::Unreadable { function, line } = &e else {
            panic!("{e}")
        };
        assert!(
            line.contains(bad.split(' ').nth(1).unwrap()) && function.len() <= 4,
            "{e}"
        );
    }
}

/// The spine is what can be on the stack, by calls through pointers as well, and nothing else.
#[test]
fn the_spine_is_what_can_reach_a_point() {
    let spine = made(
        "graph",
        &module(
            "@table = internal global [2 x ptr] [ptr @mover, ptr @same]\n\
             @others = internal global [1 x ptr] [ptr @different]\n\
             define internal i32 @mover(i32 %a, ptr %b) {\nstart:\n  call void @dyad_migrate_point()\n  ret i32 %a\n}\n\
             define internal i32 @same(i32 %a, ptr %b) {\nstart:\n  ret i32 1\n}\n\
             define internal i32 @not_taken(i32 %a, ptr %b) {\nstart:\n  ret i32 2\n}\n\
             define internal i32 @different(ptr %b, i32 %a) {\nstart:\n  ret i32 3\n}\n\
             define internal void @work(i64 %n) {\nstart:\n  %f = load ptr, ptr @table, align 8\n\
             %a = call i32 %f(i32 1, ptr null)\n  %g = load ptr, ptr @others, align 8\n\
             %b = call i32 %g(ptr null, i32 %a)\n  %c = call i32 @not_taken(i32 %b, ptr null)\n  ret void\n}\n",
        ),
    );
    assert_eq!(
        spine.functions,
        ["dyad_spine_root", "mover", "same", "work"]
    );
    let targets: Vec<_> = spine
        .sites
        .iter()
        .map(|s| (s.function.as_str(), s.targets.len()))
        .collect();
    assert_eq!(targets, [("dyad_spine_root", 0), ("mover", 0), ("work", 2)]);
    let text = spine.ir.text();
    assert!(
        text.contains("call preserve_nonecc i32 %") && text.contains("= call i32 %"),
        "{text}"
    );
    assert!(
        text.contains("define internal i32 @not_taken")
            && text.contains("preserve_nonecc i32 @same")
    );
    assert!(!text.contains("optnone"));
}

/// What may be anything is zero where it could reach a register, also within constants.
#[test]
fn what_may_be_anything_is_zero() {
    let made = made(
        "anything",
        &module(
            "define internal void @take({ i1, i8 } %p) {\nstart:\n  call void @dyad_migrate_point()\n  ret void\n}\n\
             define internal void @work(i64 %n) {\nstart:\n  %c = icmp eq i64 %n, 0\n  br i1 %c, label %some, label %join\n\n\
             some:\n  %b = trunc i64 %n to i8\n  %s = insertvalue { i1, i8 } { i1 true, i8 poison }, i8 %b, 1\n  br label %join\n\n\
             join:\n  %v = phi { i1, i8 } [ %s, %some ], [ { i1 false, i8 undef }, %start ]\n\
             \x20 call void @take({ i1, i8 } %v)\n  call void @take({ i1, i8 } { i1 false, i8 poison })\n\
             \x20 %f = freeze i8 poison\n  %t = insertvalue { i1, i8 } %v, i8 %f, 1\n  call void @take({ i1, i8 } %t)\n\
             \x20 %q = insertelement <2 x i64> poison, i64 %n, i64 0\n  store <2 x i64> %q, ptr null, align 8\n  ret void\n}\n",
        ),
    );
    let text = made.ir.text();
    for expected in [
        "freeze i8 zeroinitializer",
        "insertelement <2 x i64> poison, i64 ",
        "[ { i1 false, i8 zeroinitializer }, %start ]",
        "insertvalue { i1, i8 } { i1 true, i8 zeroinitializer }, i8 %b, 1",
        "@take({ i1, i8 } { i1 false, i8 zeroinitializer })",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

/// Rust lets a program call a function through a pointer of another type that is passed alike: such calls
/// reach the same functions, and have their convention. Types of another width do not.
#[test]
fn calls_through_pointers_of_another_type_reach_the_same_functions() {
    let made = made(
        "alike",
        &module(
            "@flags = internal global [1 x ptr] [ptr @by_flag]\n@words = internal global [1 x ptr] [ptr @by_words]\n\
             define internal i64 @by_flag(ptr returned %a, i1 zeroext %b) {\nstart:\n  call void @dyad_migrate_point()\n\
             %r = zext i1 %b to i64\n  ret i64 %r\n}\n\
             define internal zeroext i1 @by_words(i64 %a, i64 %b) {\nstart:\n  call void @dyad_migrate_point()\n\
             %r = icmp eq i64 %a, %b\n  ret i1 %r\n}\n\
             define internal void @work(i64 %n) {\nstart:\n  %f = load ptr, ptr @flags, align 8\n\
             %a = call i64 %f(ptr returned null, i8 1)\n  %g = load ptr, ptr @words, align 8\n\
             %b = call zeroext i8 %g(ptr null, i64 poison)\n  %c = call i64 %f(ptr null, i32 1)\n  ret void\n}\n",
        ),
    );
    assert_eq!(
        made.functions,
        ["by_flag", "by_words", "dyad_spine_root", "work"]
    );
    let of_work = made.sites.iter().filter(|s| s.function == "work");
    let targets: Vec<_> = of_work.map(|s| s.targets.join(",")).collect();
    assert_eq!(targets, ["by_flag", "by_words"]);
    let text = made.ir.text();
    for expected in [
        // AArch64 callers take `returned` for more than the convention says; what is extended is not relied upon.
        "define internal preserve_nonecc i64 @by_flag(ptr %a, i1 %b)",
        "call preserve_nonecc i64 %f(ptr null, i8 1)",
        "define internal preserve_nonecc i1 @by_words(",
        // What is passed is never what was there before.
        "call preserve_nonecc i8 %g(ptr null, i64 zeroinitializer)",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let plain = |l: &str| l.contains("= call i64 %") && l.ends_with("(ptr null, i32 1)");
    assert!(text.lines().any(plain), "{text}");
    // The calls as the verifier reads them: with a site, and without.
    let read = &made.conventions;
    assert!(read.broken.is_empty(), "{read:?}");
    assert_eq!(read.plain["work"].len(), 1);
    let passed: Vec<_> = read.sites.values().map(|s| s.arguments.as_str()).collect();
    assert_eq!(
        passed.iter().filter(|a| **a == "lb" || **a == "ll").count(),
        2,
        "{passed:?}"
    );
}

/// Integers of 128 bits are passed as words, by name and through pointers, in functions of the spine and in those that are not
/// on it: no number of arguments is too many.
#[test]
fn wide_arguments_of_the_spine_are_words() {
    let spine = made(
        "words",
        &module(
            "@t = internal global ptr @wide\n\
             define internal i128 @wide(i64 %n, i128 noundef %b) noinline {\nstart:\n  call void @dyad_migrate_point()\n  ret i128 %b\n}\n\
             define void @outside(ptr %f) {\n  %1 = load i128, ptr %f\n  %2 = call i128 %f(i64 1, i128 %1)\n  store i128 %2, ptr %f\n  ret void\n}\n\
             define internal void @work(i64 %n) {\nstart:\n  %p = inttoptr i64 %n to ptr\n  %x = call i128 @wide(i64 1, i128 poison)\n\
             %y = call i128 %p(i64 1, i128 %x)\n  %z = call i128 %p(i64 2, i128 7)\n  ret void\n}\n",
        ),
    );
    let text = spine.ir.text();
    assert!(
        !text.contains("i128 noundef")
            && text.contains("@wide(i64 %n, i64 %spine.word.0, i64 %spine.word.1)")
    );
    assert_eq!(
        text.matches("@wide(i64 1, i64 0, i64 0)").count(),
        1,
        "{text}"
    );
    let made = |what: &str| text.matches(what).count();
    assert_eq!(
        (made("= or disjoint i128"), made("= trunc i128")),
        (1, 6),
        "{text}"
    );
    let passed = spine
        .conventions
        .sites
        .values()
        .map(|s| s.arguments.as_str());
    assert_eq!(passed.filter(|a| *a == "lll").count(), 3);
    assert!(
        !spine
            .conventions
            .functions
            .values()
            .any(|s| s.arguments.contains('L'))
    );
}

/// Structures that are on the stack, as values: back ends have rules of their own for them.
#[test]
fn arguments_without_a_place_are_refused() {
    let work = |words: usize| {
        let words: String = (0..words).map(|i| format!("i64 %a{i}, ")).collect();
        let values = words.replace("i64 %a", "i64 1").replace("i64 1", "i64 ");
        module(&format!(
            "define internal void @many({words}{{ i64, i32 }} %b) noinline {{\nstart:\n  call void @dyad_migrate_point()\n  ret void\n}}\n\
             define internal void @work(i64 %n) {{\nstart:\n  call void @many({values}{{ i64, i32 }} zeroinitializer)\n  ret void\n}}\n"
        ))
    };
    assert_eq!(made("fits", &work(10)).functions.len(), 3);
    let found = refused("halves", &work(11));
    assert_eq!(found, [("many".to_owned(), None, Refused::Arguments)]);
}

/// Values go to the frame where they cross a site, once, and nowhere else.
#[test]
fn only_what_crosses_a_site_is_in_the_frame() {
    let spine = made(
        "across",
        &module(
            "define internal void @work(i64 %n) {\nstart:\n  %k = call i64 @plain(i64 %n)\n  br label %loop\n\
             loop:\n  %i = phi i64 [ 0, %start ], [ %i2, %loop ]\n  %s = phi i64 [ %k, %start ], [ %s2, %loop ]\n\
             %s2 = call i64 @plain(i64 %s)\n  %i2 = add i64 %i, 1\n  %c = icmp eq i64 %i2, %n\n\
             br i1 %c, label %out, label %loop\nout:\n  call void @dyad_migrate_point()\n\
             %r = call i64 @plain(i64 %s2)\n  call void @dyad_migrate_point()\n  %q = call i64 @plain(i64 %s2)\n  ret void\n}\n",
        ),
    );
    let frame = |name: &str| spine.frames.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!((frame("work"), frame("dyad_spine_root")), (16, 0));
    let text = spine.ir.text();
    let start = text
        .find("define internal preserve_nonecc void @work(")
        .unwrap();
    let body = &text[start..start + text[start..].find("\n}").unwrap()];
    // One value crosses both sites: one store, a load behind each.
    assert_eq!(body.matches("store i64").count(), 1, "{body}");
    assert_eq!(body.matches("load i64").count(), 2, "{body}");
    assert_eq!(body.matches("call ptr @dyad.frame()").count(), 3, "{body}");
    let looped = &body[body.find("loop:").unwrap()..body.find("out:").unwrap()];
    assert!(
        !looped.contains("load") && !looped.contains("store"),
        "{looped}"
    );
}

/// A loop that nothing crosses is left as it was: no branch more for each round, whatever is known of it.
#[test]
fn loops_have_no_more_blocks_than_before() {
    let spine = made(
        "loop",
        &module(
            "define internal void @work(i64 %n) {\nstart:\n  br label %loop\n\
             loop:\n  %i = phi i64 [ 0, %start ], [ %i2, %loop ]\n  %s = phi i64 [ %n, %start ], [ %s2, %loop ]\n\
             %s2 = call i64 @plain(i64 %s)\n  %i2 = add i64 %i, 1\n  %c = icmp eq i64 %i2, %n\n\
             br i1 %c, label %out, label %loop, !llvm.loop !9\n\
             out:\n  call void @dyad_migrate_point()\n  ret void\n}\n\
             !9 = distinct !{!9, !10}\n!10 = !{!\"llvm.loop.isvectorized\", i32 1}\n",
        ),
    );
    let text = spine.ir.text();
    assert!(
        text.contains("label %out, label %loop, !llvm.loop !9\n"),
        "{text}"
    );
}

/// A variable `n` of the source that the optimiser has copied is `%n.0`, and one named `spine` is `%spine.1`: values that the
/// pass names, or gives names instead of numbers, are others: they begin with a dollar sign.
#[test]
fn names_that_the_pass_makes_are_not_those_of_the_program() {
    let spine = made(
        "names",
        &module(
            "define internal void @work(i64 %n) {\nstart:\n  %n.0 = add i64 %n, 1\n  %0 = add i64 %n, 2\n  %spine.1 = add i64 %n, 3\n\
             %spine.2 = add i64 %n, 4\n  %s = add i64 %n.0, %0\n  %t = add i64 %spine.1, %spine.2\n  call void @dyad_migrate_point()\n\
             %a = call i64 @plain(i64 %s)\n  %b = call i64 @plain(i64 %t)\n  ret void\n}",
        ),
    );
    assert!(spine.functions.iter().any(|f| f == "work"));
}

/// A value without a size of which the address is taken lives in the frame, even if nothing else does.
#[test]
fn a_variable_without_a_size_has_an_address() {
    let spine = made(
        "nothing",
        &module(
            "define internal void @work(i64 %n) {\nstart:\n  %nothing = alloca {}, align 1\n\
             call void @dyad_migrate_point()\n  %a = ptrtoint ptr %nothing to i64\n\
             %b = call i64 @plain(i64 %a)\n  ret void\n}",
        ),
    );
    assert!(spine.functions.iter().any(|f| f == "work"));
}

/// A call that touches no memory gives the same result behind a site as before it. It is made again there: its first result is in
/// a register, or on the native stack.
#[test]
fn a_result_is_not_taken_for_that_of_an_equal_call_behind_a_site() {
    let spine = made(
        "equal-calls",
        &module(
            "declare i64 @pure(i64) nounwind willreturn memory(none)\n\
             define internal void @work(i64 %n) {\nstart:\n  %a = call i64 @pure(i64 41)\n  %b = call i64 @plain(i64 %a)\n\
             call void @dyad_migrate_point()\n  %c = call i64 @pure(i64 41)\n  %d = call i64 @plain(i64 %c)\n  ret void\n}",
        ),
    );
    let text = spine.ir.text();
    assert_eq!(text.matches("call i64 @pure(i64 41)").count(), 2, "{text}");
    assert!(!text.contains("presplitcoroutine"), "{text}");
}

/// A value has one store on each way to a site, a load only where it is used before the next site, and a phi only where
/// two of its names meet.
#[test]
fn nothing_is_loaded_that_is_not_used_before_the_next_site() {
    let spine = made(
        "lazy",
        &module(
            "define internal void @work(i64 %n) {\nstart:\n  %v = call i64 @plain(i64 %n)\n  call void @dyad_migrate_point()\n\
             call void @dyad_migrate_point()\n  call void @dyad_migrate_point()\n  %c = icmp eq i64 %v, 3\n\
             br i1 %c, label %left, label %right\nleft:\n  %a = call i64 @plain(i64 1)\n  br label %both\n\
             right:\n  %b = call i64 @plain(i64 2)\n  br label %both\nboth:\n  %d = call i64 @plain(i64 %v)\n  ret void\n}",
        ),
    );
    let text = spine.ir.text();
    let start = text
        .find("define internal preserve_nonecc void @work(")
        .unwrap();
    let body = &text[start..start + text[start..].find("\n}").unwrap()];
    assert_eq!(body.matches("store i64 %v, ").count(), 1, "{body}");
    assert_eq!(body.matches("= load i64, ").count(), 1, "{body}");
    // At the entry, and behind the last site.
    assert_eq!(body.matches("call ptr @dyad.frame()").count(), 2, "{body}");
    assert!(!body.contains(" phi "), "{body}");
}
