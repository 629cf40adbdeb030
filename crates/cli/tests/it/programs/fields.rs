// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs in C++ hand to events, texts that readers make, and spans (crates/testkit/c/fields.cpp): the values are those of the source.

use super::fixture::Fixture;
use crate::command::{root, rtscope};
use rtscope_testkit::skip;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// Events of a trace: names, and fields.
fn printed(fixture: &Fixture) -> Vec<(String, Value, Value)> {
    let output =
        rtscope().args(["print", "--format", "json"]).arg(fixture.trace()).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let events = events.map(|mut event| {
        (event["event"].as_str().expect("a name").to_string(), event["fields"].take(), event["text"].take())
    });
    events.collect()
}

#[test]
fn what_cpp_programs_have_in_their_hands_is_recorded_as_it_is() {
    let fixture = Fixture::new();
    let source = root().join("crates/testkit/c/fields.cpp");
    let ways: [(&str, &[&str]); 5] = [
        ("g++", &["-O0"]),
        ("g++", &["-O2"]),
        ("g++", &["-O2", "-flto", "-fno-pie", "-no-pie"]),
        ("clang++-19", &["-O0", "-fPIC"]),
        ("clang++-19", &["-O2"]),
    ];
    for (compiler, flags) in ways {
        let strict = ["-std=c++17", "-DRTSCOPE_LINT", "-Wno-overlength-strings"];
        let Some(program) = fixture.compile(compiler, &[&strict, flags].concat(), &source, "fields") else {
            continue;
        };
        let recorded = fixture.record(&[], &[program]);
        let events = printed(&fixture);
        let names: Vec<&str> = events.iter().map(|(name, ..)| &name["test:".len()..]).collect();
        let expected = [
            "texts",
            "cut",
            "ranges",
            "says",
            "says_less",
            "outer_begin",
            "quote_begin",
            "quoted",
            "depth",
            "quote_end",
            "quote_begin",
            "quoted",
            "depth",
            "quote_end",
            "outer_end",
        ];
        assert_eq!(names, expected, "{compiler} {flags:?}: {}", recorded.account);
        let of = |name: &str| events.iter().find(|event| event.0[5..] == *name).expect("it is there");
        let texts = json!({"symbol": "EURUSD", "part": "EUR", "made": "EURUSD/EUR", "three": "EUR", "empty": "", "plain": "plain"});
        assert_eq!(of("texts").1, texts, "{compiler} {flags:?}");
        let x = |count| "x".repeat(count);
        let cut = json!({"longest": x(255), "longer": x(252) + "…", "umlauts": x(251) + " …", "of_c": x(252) + "…"});
        assert_eq!(of("cut").1, cut, "{compiler} {flags:?}");
        let ranges = json!({
            "_weights_length": 2, "weights": [1.0, 2.5], "limits": [-1.0, 0.1], "_first_length": 1, "first": [1.0],
            "values": [1, 2, 3], "_bytes_length": 2, "bytes": [97, 122],
            "side": {"value": 83, "labels": ["sell"]},
            // The bits of a field with a sign.
            "flag": {"value": i32::MIN, "labels": ["last"]}, "flags": {"value": -1, "labels": ["all"]},
        });
        assert_eq!(of("ranges").1, ranges, "{compiler} {flags:?}");
        let said: Vec<&str> = events.iter().filter_map(|(.., text)| text.as_str()).collect();
        let expected = ["EURUSD B EUR 4 5 2 0x0  0.10|", "100 %", "1 of 3, new", "2.5 of 2, new"];
        assert_eq!(said, expected, "{compiler} {flags:?}");
        let counts: Vec<&Value> =
            events.iter().filter(|event| event.0 == "test:depth").map(|event| &event.1["all"]).collect();
        assert_eq!(
            counts,
            [&json!([1, 2, 3]), &json!([1_069_547_520, -1_073_741_824])],
            "{compiler} {flags:?}"
        );
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
    fixture.compile("g++", &["-std=c++17", "-O2", "-DRTSCOPE_DISABLE"], &source, "disabled");
}

#[test]
fn a_rust_program_says_the_same_and_has_spans() {
    for context in [&[][..], &["--context", "pid,tid,comm,cpu"]] {
        says_and_has_spans(context);
    }
}

fn says_and_has_spans(context: &[&str]) {
    let fixture = Fixture::new();
    let program = rtscope_testkit::process::program("rtscope-says").expect("built");
    let recorded = fixture.record(context, &[program]);
    let events = printed(&fixture);
    let names: Vec<&str> = events.iter().map(|(name, ..)| &name["test:".len()..]).collect();
    let step = ["step_begin", "stepped", "step_end"];
    let expected = [&["whole_begin"], &step[..], &step, &["done", "whole_end"]].concat();
    assert_eq!(names, expected, "{}", recorded.account);
    let said: Vec<&str> = events.iter().filter_map(|(.., text)| text.as_str()).collect();
    let expected = ["step 1 to 0.50 (by hand)", "step 2 to 3.00 (by hand)", "done, 100 %"];
    assert_eq!(said, expected, "{context:?}");
    assert_eq!(events[1].1, json!({ "number": 1 }));
}

#[test]
fn what_cannot_be_an_event_is_a_sentence_of_the_compilers() {
    let fixture = Fixture::new();
    let all =
        |count: u32| (0..count).map(|n| format!("rtscope_s32(f{n}, argc)")).collect::<Vec<_>>().join(", ");
    let wrong = [
        (
            "int v[9]; RTSCOPE_EVENT(t, e, rtscope_array_s32(v, v, argc));",
            "the count of an array is a constant",
        ),
        ("int v[9]; RTSCOPE_EVENT(t, e, rtscope_array_s32(v, v, 0));", "an array has at least 1 element"),
        (
            "double v[9]; RTSCOPE_EVENT(t, e, rtscope_array_f64(v, v, 1024));",
            "fits into an event of 8184 bytes",
        ),
        (
            "struct { int a; } s = { argc }; RTSCOPE_PRINTF(t, e, \"%d\", s);",
            "an argument of RTSCOPE_PRINTF is",
        ),
        (
            "const char *f = argv[0]; RTSCOPE_PRINTF(t, e, f, argc);",
            "the format of RTSCOPE_PRINTF is a literal",
        ),
        (&format!("RTSCOPE_EVENT(t, e, {});", all(17)), "an event has at most 16 fields"),
        (&format!("RTSCOPE_SPAN(t, e, {});", all(24)), "an event has at most 16 fields"),
        (
            "RTSCOPE_PRINTF(t, e, \"%d\", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);",
            "RTSCOPE_PRINTF takes at most 12 arguments",
        ),
    ];
    for (statement, sentence) in wrong {
        let path = fixture.path("wrong.c");
        let text = format!(
            "#include <rtscope/rtscope.h>\nint main(int argc, char **argv)\n{{\n\t(void)argv;\n\t{statement}\n\treturn argc;\n}}\n"
        );
        fs::write(&path, text).expect("it can be written");
        for (compiler, language) in [("gcc", "c"), ("g++", "c++"), ("clang-19", "c"), ("clang++-19", "c++")] {
            let mut command = Command::new(compiler);
            command.args(["-x", language, "-I"]).arg(root().join("include")).arg(&path);
            let Ok(output) = command.arg("-o").arg(fixture.path("wrong")).output() else {
                skip!("no {compiler}")
            };
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && errors.contains(sentence) && !errors.contains("pasting"),
                "{compiler} {statement}: {errors}"
            );
        }
    }
}

#[test]
fn a_label_of_more_than_32_bits_is_refused_by_compilers_of_cpp() {
    let fixture = Fixture::new();
    let path = fixture.path("labels.cpp");
    for (value, is_refused) in
        [("1LL << 33", true), ("-2147483649LL", true), ("1ULL << 63", true), ("0xffffffffU", false)]
    {
        let text = format!(
            "#include <rtscope/rtscope.h>\nRTSCOPE_ENUM(mode, {{ {value}, \"m\" }});\n\
             int main(int argc, char **)\n{{\n\tRTSCOPE_EVENT(t, e, rtscope_enum(m, mode, argc));\n}}\n"
        );
        fs::write(&path, text).expect("it can be written");
        for compiler in ["g++", "clang++-19"] {
            let mut command = Command::new(compiler);
            command.args(["-std=c++17", "-I"]).arg(root().join("include")).arg(&path);
            let Ok(output) = command.arg("-o").arg(fixture.path("labels")).output() else {
                skip!("no {compiler}")
            };
            let errors = String::from_utf8_lossy(&output.stderr);
            let sentence = "the_value_of_a_label_has_at_most_32_bits";
            assert_eq!(output.status.success(), !is_refused, "{compiler} {value}: {errors}");
            assert_eq!(errors.contains(sentence), is_refused, "{compiler} {value}: {errors}");
        }
    }
}

#[test]
fn a_format_and_its_arguments_that_do_not_match_are_a_sentence_of_the_compilers() {
    let fixture = Fixture::new();
    let path = fixture.path("format.c");
    let compiled = |compiler: &str, language: &str, arguments: &str| {
        let text = format!(
            "#include <rtscope/rtscope.h>\nint main(int argc, char **argv)\n{{\n\t(void)argv;\n\tRTSCOPE_PRINTF(t, e, {arguments});\n\treturn argc;\n}}\n"
        );
        fs::write(&path, text).expect("it can be written");
        let mut command = Command::new(compiler);
        command.args(["-x", language, "-Wall", "-Werror", "-I"]).arg(root().join("include")).arg(&path);
        command.arg("-o").arg(fixture.path("format")).output().ok()
    };
    let counted = "as many conversions as there are arguments";
    for (compiler, language, sentence) in [
        ("gcc", "c", "-Werror=format"),
        ("g++", "c++", counted),
        ("clang-19", "c", "-Werror,-Wformat"),
        ("clang++-19", "c++", counted),
    ] {
        let wrong = [("\"%d of %d\", argc", sentence), ("\"%d\", argc, argc", sentence)];
        let right = [("\"100 %% of %d\", argc", ""), ("\"nothing\"", "")];
        for (arguments, sentence) in [wrong, right].concat() {
            let Some(output) = compiled(compiler, language, arguments) else { skip!("no {compiler}") };
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), sentence.is_empty(), "{compiler} {arguments}: {errors}");
            assert!(errors.contains(sentence), "{compiler} {arguments}: {errors}");
        }
    }
}

/// The story of docs/how-to/order-engine.md, with few orders.
#[test]
fn the_order_engine_did_what_its_recording_says() {
    if ["cmake", "g++", "jq"].into_iter().any(skip::without_tool) {
        return;
    }
    let story = root().join("examples/stories/order-engine/run");
    let output = Command::new(story).arg(crate::command::path()).arg("300").output().expect("bash is there");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 8, "{said}");
}
