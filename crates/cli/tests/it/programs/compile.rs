// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `include/rtscope` as compilers and other tools see it, and the README's example as it is printed there.

use super::fixture::{Fixture, block, lines};
use crate::command::{root, rtscope};
use rtscope_testkit::skip;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `#pragma GCC system_header` hides the headers' warnings from users, and would from this test.
const STRICT: [&str; 3] = ["-DRTSCOPE_LINT", "-Wshadow", "-Wconversion"];

#[test]
fn the_header_compiles_without_a_warning() {
    let fixture = Fixture::new();
    let c = root().join("crates/testkit/c/unusual.c");
    let cpp = root().join("crates/testkit/c/template.cpp");
    let ways: [&[&str]; 6] = [
        &["-O0"],
        &["-O2"],
        &["-O2", "-fPIC", "-shared"],
        &["-O2", "-static"],
        &["-O2", "-g"],
        &["-O2", "-DRTSCOPE_DISABLE"],
    ];
    for flags in ways {
        for (compiler, standard, source) in [
            ("gcc", "-std=c11", &c),
            ("clang-19", "-std=c11", &c),
            ("g++", "-std=c++17", &cpp),
            ("clang++-19", "-std=c++17", &cpp),
        ] {
            // The standard library's static parts are not everywhere.
            if flags.contains(&"-static") && compiler != "gcc" {
                continue;
            }
            fixture.compile(compiler, &[flags, &STRICT[..1], &[standard]].concat(), source, "out");
        }
    }
    // Every macro and function, in the part of C that is also C++.
    let vectors = root().join("crates/testkit/c/vectors.c");
    for (compilers, language, standards) in [
        (["gcc", "clang-19"], "c", &["c11", "c17", "c2x", "gnu11", "gnu17"][..]),
        (["g++", "clang++-19"], "c++", &["c++11", "c++14", "c++17", "c++20", "c++2b"][..]),
    ] {
        for (compiler, standard) in
            compilers.iter().flat_map(|one| standards.iter().map(move |standard| (one, standard)))
        {
            // A standard is the front end's affair.
            let is_last = standards.last() == Some(standard);
            let standard = format!("-std={standard}");
            let how = if is_last { "-O2" } else { "-fsyntax-only" };
            let flags = [&STRICT[..], &[how, &standard, "-x", language]].concat();
            fixture.compile(compiler, &flags, &vectors, "out");
        }
    }
    fixture.compile("gcc", &["-O2", "-flto", "-std=c11"], &c, "out");
    fixture.compile("gcc", &["-O2", "-masm=intel", "-std=c11"], &c, "out");
}

/// Users do not compile with RTSCOPE_LINT, and have their compiler's pedantry nevertheless: in statements that macros wrote for them. Two
/// spans of one line are what a macro of theirs makes of two.
#[test]
fn what_users_write_compiles_without_a_warning() {
    let fixture = Fixture::new();
    let source = fixture.path("users.c");
    let text = "#include <rtscope/rtscope.h>\n\
        #define BOTH RTSCOPE_SPAN(test, outer); RTSCOPE_SPAN(test, inner)\n\
        int main(void)\n{\n\
        \tRTSCOPE_PRINTF(test, many, \"%d %d %d %d %d %d %d %d %d %d %d %d\", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);\n\
        \tBOTH;\n\treturn 0;\n}\n";
    fs::write(&source, text).expect("a file of the test");
    let flags = ["-Wconversion", "-Wshadow", "-Wundef", "-Wcast-qual", "-O2", "-x"];
    for (compiler, language) in [("gcc", "c"), ("clang-19", "c"), ("g++", "c++"), ("clang++-19", "c++")] {
        let Some(program) = fixture.compile(compiler, &[&flags[..], &[language]].concat(), &source, "users")
        else {
            continue;
        };
        let recorded = fixture.record(&[], &[&program]);
        assert_eq!((recorded.events(), recorded.lost()), (5, 0), "{compiler}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn a_warning_of_the_header_is_found() {
    let fixture = Fixture::new();
    let source = fixture.path("plain.c");
    fs::write(&source, "#include <rtscope/rtscope.h>\nint main(void)\n{\n\treturn 0;\n}\n")
        .expect("a file of the test");
    let headers = fixture.path("planted");
    fs::create_dir_all(headers.join("rtscope")).expect("a directory of the test");
    for entry in fs::read_dir(root().join("include/rtscope")).expect("the headers are there").flatten() {
        let mut text = fs::read_to_string(entry.path()).expect("text");
        if entry.file_name() == "clock.h" {
            let end = text.rfind("#endif").expect("it has a guard");
            text.insert_str(end, "static inline int rtscope__planted(int unused)\n{\n\treturn 0;\n}\n");
        }
        fs::write(headers.join("rtscope").join(entry.file_name()), text).expect("a file of the test");
    }
    for compiler in ["gcc", "clang-19"].into_iter().filter(|compiler| !skip::without_tool(compiler)) {
        let mut command = Command::new(compiler);
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]).args(STRICT).arg("-I").arg(&headers);
        let output = command.arg(&source).arg("-o").arg(fixture.path("out")).output().expect("it is there");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("unused"), "{compiler}: {errors}");
    }
}

#[test]
fn disabled_events_compile_to_nothing() {
    let fixture = Fixture::new();
    let source = |name: &str, event: &str| {
        let path = fixture.path(name);
        let text = format!(
            "#include <rtscope/rtscope.h>\n#include <stdint.h>\nuint64_t f(uint64_t a, const char *t);\nuint64_t f(uint64_t a, const char *t)\n{{\n(void)t;\n{event}\nreturn a;\n}}\n"
        );
        fs::write(&path, text).expect("a file of the test");
        path
    };
    let with = source("with.c", "RTSCOPE_EVENT(test, x, rtscope_u64(a, a), rtscope_str(t, t));");
    let without = source("without.c", "");
    let text = |path: &Path, to: &str| -> Option<Vec<u8>> {
        let flags = ["-O2", "-std=c11", "-DRTSCOPE_DISABLE", "-c"];
        let object = fixture.compile("gcc", &flags, path, to)?;
        let section = fixture.path("section");
        let mut objcopy = Command::new("objcopy");
        objcopy.args(["-O", "binary", "-j", ".text"]).arg(&object).arg(&section);
        assert!(objcopy.status().expect("binutils are there with gcc").success());
        let symbols = Command::new("nm").arg(&object).output().expect("as above");
        assert!(!String::from_utf8_lossy(&symbols.stdout).contains("rtscope"));
        fs::read(section).ok()
    };
    let (with, without) = (text(&with, "with.o"), text(&without, "without.o"));
    assert!(with == without, "{with:?} {without:?}");
}

#[test]
fn a_level_is_any_constant_and_what_is_none_does_not_compile() {
    let fixture = Fixture::new();
    let source = |name: &str, event: &str| {
        let path = fixture.path(name);
        let text = format!(
            "#include <rtscope/rtscope.h>\nenum {{ MINE = 3 }};\n#define QUIET (RTSCOPE_DEBUG)\n\
             int main(int argc, char **argv)\n{{\n\t(void)argv;\n\t(void)argc;\n{event}\treturn 0;\n}}\n"
        );
        fs::write(&path, text).expect("a file of the test");
        path
    };
    let events = [("QUIET", 7), ("MINE", 3), ("RTSCOPE_INFO - 1", 5), ("(((0x2)))", 2), ("RTSCOPE_EMERG", 0)];
    let all: String = (0..)
        .zip(events)
        .map(|(i, (level, _))| format!("\tRTSCOPE_EVENT_LEVEL({level}, test, e{i}, rtscope_u32(n, {i}));\n"))
        .collect();
    let good = source("good.c", &all);
    for (compiler, language) in [("gcc", "c"), ("clang-19", "c"), ("g++", "c++"), ("clang++-19", "c++")] {
        for level in ["-O0", "-O2"] {
            let Some(program) = fixture.compile(compiler, &[level, "-x", language], &good, "good") else {
                continue;
            };
            let recorded = fixture.record(&[], &[&program]);
            assert_eq!((recorded.events(), recorded.lost()), (5, 0), "{compiler} {level}");
            let metadata = fs::read_to_string(fixture.trace().join("ust/metadata")).expect("it is text");
            for (i, (text, number)) in (0..).zip(events) {
                let class = metadata.split(&format!("\"test:e{i}\"")).nth(1).expect(text);
                let line = class.lines().find(|line| line.contains("loglevel")).expect(text);
                assert!(line.contains(&format!("= {number};")), "{compiler} {level} {text}: {line}");
            }
            fs::remove_dir_all(fixture.trace()).expect("it was made");
        }
    }
    for (name, level) in [("negative.c", "-1"), ("variable.c", "argc")] {
        let path = source(name, &format!("\tRTSCOPE_EVENT_LEVEL({level}, test, e, rtscope_u32(n, 1));\n"));
        let mut command = Command::new("gcc");
        command.args(["-std=c11", "-I"]).arg(root().join("include")).arg(path);
        let Ok(output) = command.arg("-o").arg(fixture.path("bad")).output() else { skip!("no gcc") };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{level}");
        assert!(errors.contains("level is a number") || errors.contains("not constant"), "{level}: {errors}");
    }
}

/// In GCC's large code model and under clang's HWASan an asm statement cannot name an object.
#[test]
fn where_objects_have_no_names_events_compile_and_printf_says_why_not() {
    let fixture = Fixture::new();
    let source = fixture.path("nameless.c");
    for (compiler, language, flag) in [
        ("gcc", "c", "-mcmodel=large"),
        ("g++", "c++", "-mcmodel=large"),
        ("clang-19", "c", "-fsanitize=hwaddress"),
        ("clang++-19", "c++", "-fsanitize=hwaddress"),
    ] {
        let compile = |statement: &str| {
            let text = format!(
                "#include <rtscope/rtscope.h>\nint main(void)\n{{\n\t{statement};\n\treturn 0;\n}}\n"
            );
            fs::write(&source, text).expect("a file of the test");
            let mut command = Command::new(compiler);
            command.args(["-Wall", "-Wextra", "-Werror", "-O2", flag, "-x", language, "-I"]);
            command
                .arg(root().join("include"))
                .arg("-c")
                .arg(&source)
                .arg("-o")
                .arg(fixture.path("nameless.o"));
            let output = command.output().ok()?;
            Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
        };
        let Some((is_compiled, errors)) = compile("RTSCOPE_EVENT(test, e, rtscope_str(text, \"t\"))") else {
            continue;
        };
        assert!(is_compiled, "{compiler}: {errors}");
        let (is_compiled, errors) = compile("RTSCOPE_PRINTF(test, e, \"%d\", 1)").expect("it was there");
        assert!(!is_compiled && errors.contains("RTSCOPE_PRINTF needs another code model"), "{errors}");
    }
}

#[test]
fn a_value_of_another_kind_than_its_field_does_not_compile() {
    let fixture = Fixture::new();
    let compiled = |compiler: &str, language: &str, field: &str| {
        let path = fixture.path("field.c");
        let text = format!(
            "#include <rtscope/rtscope.h>\nstatic struct {{ unsigned bits : 3; }} flags;\n\
             static int numbers[4];\nstatic enum {{ RED }} colours[4];\nint main(int argc, char **argv)\n{{\n\
             \tRTSCOPE_EVENT(test, e, {field});\n\treturn argc && argv && flags.bits && numbers[0] && colours[0];\n}}\n"
        );
        fs::write(&path, text).expect("a file of the test");
        let mut command = Command::new(compiler);
        command
            .args(["-Wall", "-Wextra", "-Werror", "-x", language, "-I"])
            .arg(root().join("include"))
            .arg(path);
        let output = command.arg("-c").arg("-o").arg(fixture.path("field.o")).output().ok()?;
        Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    for (compiler, language) in [("gcc", "c"), ("clang-19", "c"), ("g++", "c++"), ("clang++-19", "c++")] {
        for (field, says) in [
            ("rtscope_u32(a, \"text\")", "its value a pointer"),
            ("rtscope_s8(a, argv)", "its value a pointer"),
            ("rtscope_str(a, argc)", "its value is none"),
            ("rtscope_strn(a, flags.bits, 8)", "its value is none"),
            ("rtscope_array_f64(a, numbers, 2)", "the elements have another type"),
            ("rtscope_seq_f64(a, numbers, argc)", "the elements have another type"),
            ("rtscope_seq_s64(a, numbers, argc)", "the elements have another type"),
            ("rtscope_array_s32(a, argc, 2)", "this field is an array, and its value is none"),
            ("rtscope_int(a, argc)", "RTSCOPE__NO_SUCH_KIND_OF_FIELD"),
        ] {
            let Some((is_compiled, errors)) = compiled(compiler, language, field) else { continue };
            assert!(!is_compiled, "{compiler}: {field}");
            // Of an integer that is a text C++ says so in its own words.
            assert!(
                language == "c++" && says.ends_with("a pointer") || errors.contains(says),
                "{compiler}: {errors}"
            );
        }
        for field in [
            "rtscope_u32(a, flags.bits)",
            "rtscope_u32(a, 1.5)",
            "rtscope_bool(a, argv)",
            "rtscope_seq_u32(a, numbers, argc)",
            "rtscope_seq_u32(a, colours, argc)",
            "rtscope_seq_f64(a, (const void *)numbers, argc)",
            "rtscope_array_u8(a, argv[0], 1)",
            "rtscope_str(a, argc ? argv[0] : 0)",
            "rtscope_strn(a, \"text\", 3)",
        ] {
            let Some((is_compiled, errors)) = compiled(compiler, language, field) else { continue };
            assert!(is_compiled, "{compiler}: {field}: {errors}");
        }
        // An address in as many bits.
        let address =
            if language == "c" { "rtscope_x64(a, argv)" } else { "rtscope_x64(a, (uintptr_t)argv)" };
        assert!(
            compiled(compiler, language, address).is_none_or(|(is_compiled, _)| is_compiled),
            "{compiler}"
        );
    }
}

#[test]
fn templates_and_inline_functions_are_recorded() {
    let fixture = Fixture::new();
    for (compiler, level) in [("g++", "-O0"), ("g++", "-O2"), ("clang++-19", "-O2")] {
        let source = root().join("crates/testkit/c/template.cpp");
        let Some(program) = fixture.compile(compiler, &[level, "-std=c++17"], &source, "template") else {
            continue;
        };
        let recorded = fixture.record(&[], &[program]);
        recorded.assert_complete();
        let counts =
            ["test:box", "test:in_line", "test:lambda", "test:empty"].map(|name| recorded.of_event(name));
        assert_eq!(counts, [3, 2, 2, 1], "{compiler} {level}: {}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn other_tools_see_the_events_as_usdt_probes() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let notes = Command::new("readelf").arg("-n").arg(&emitter).output().expect("binutils are there with cc");
    let notes = String::from_utf8_lossy(&notes.stdout);
    for expected in ["Provider: test", "Name: count", "Name: handler", "Name: text"] {
        assert!(notes.contains(expected), "{expected}");
    }
    if skip::without_tool("bpftrace") || skip::without_root() {
        return;
    }
    let list = Command::new("bpftrace").arg("-l").arg(format!("usdt:{}:*", emitter.display())).output();
    let list = String::from_utf8(list.expect("it was just there").stdout).expect("text");
    assert!(list.contains(":test:count"), "{list}");
}

// NEEDS: host
#[test]
fn root_bpftrace_gets_the_events_while_nobody_records_them() {
    if skip::without_root() || skip::without_tool("bpftrace") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let program = format!("usdt:{}:test:count {{ @n = count(); @most = max(arg0); }}", emitter.display());
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-e", &program, "-c"]).arg(format!("{} count 1000", emitter.display()));
    let output = bpftrace.output().expect("it was just there");
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        skip!("bpftrace: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    assert!(text.contains("@n: 1000") && text.contains("@most: 999"), "{text}");
}

#[test]
fn the_readmes_example_compiles_and_traces_as_printed() {
    let fixture = Fixture::new();
    fs::write(fixture.path("motor.c"), block("c")).expect("a file of the test");
    std::os::unix::fs::symlink(
        root().join("include").canonicalize().expect("there"),
        fixture.path("include"),
    )
    .expect("a file of the test");
    let own = rtscope().get_program().to_owned();
    let directory = Path::new(&own).parent().expect("it is in a directory").display().to_string();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-e", "-c", &block("sh")])
        .env("PATH", path)
        .current_dir(fixture.dir.path())
        .output()
        .expect("sh is there");
    assert!(output.status.success(), "{output:?}");
    let events = |text: &str| -> Vec<String> {
        let events = text.lines().filter_map(|line| Some(line[line.find("motor:setpoint:")?..].to_string()));
        events.collect()
    };
    let expected = events(&block("text"));
    assert_eq!(expected.len(), 3);
    assert_eq!(events(&String::from_utf8_lossy(&output.stdout)), expected);
    assert_eq!(lines(&fixture.trace()).len(), 3);
}

#[test]
fn what_is_installed_is_found_by_pkg_config_and_cmake_and_can_be_removed() {
    let fixture = Fixture::new();
    let prefix = fixture.path("prefix");
    let program = crate::command::path();
    let install = Command::new(root().join("dist/install.sh")).arg(&program).arg(&prefix).output();
    let install = install.expect("it can be run");
    assert!(install.status.success(), "{install:?}");
    for file in [
        "bin/rtscope",
        "share/man/man1/rtscope-record.1",
        "share/man/man3/RTSCOPE_EVENT.3",
        "share/man/man3/RTSCOPE_PRINTF.3",
        "share/man/man3/rtscope_array_f32.3",
        "share/bash-completion/completions/rtscope",
    ] {
        assert!(prefix.join(file).is_file(), "{file}");
    }
    let source = fixture.path("main.c");
    let text = "#include <rtscope/rtscope.h>\n#include <rtscope/queue.h>\nint main(void)\n{\n\tRTSCOPE_EVENT(a, b, rtscope_u64(c, 1));\n\treturn 0;\n}\n";
    fs::write(&source, text).expect("a file of the test");
    if !skip::without_tool("pkg-config") {
        let mut command = Command::new("pkg-config");
        command.args(["--cflags", "rtscope"]).env("PKG_CONFIG_PATH", prefix.join("share/pkgconfig"));
        let flags = command.output().expect("it is there");
        assert!(flags.status.success(), "{flags:?}");
        let flags = String::from_utf8(flags.stdout).expect("text");
        let mut compiler = Command::new("cc");
        compiler.args(flags.split_whitespace()).arg(&source).arg("-o").arg(fixture.path("a"));
        assert!(compiler.status().expect("a compiler").success());
    }
    if !skip::without_tool("cmake") {
        let lists = "cmake_minimum_required(VERSION 3.13)\nproject(user C)\nfind_package(Rtscope 9 QUIET)\nif(Rtscope_FOUND)\nmessage(FATAL_ERROR \"9 is not there\")\nendif()\nfind_package(Rtscope 0.1 REQUIRED)\nadd_executable(user main.c)\ntarget_link_libraries(user PRIVATE Rtscope::rtscope)\n";
        fs::write(fixture.path("CMakeLists.txt"), lists).expect("a file of the test");
        let build = fixture.path("build");
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
        for words in
            [["-S", fixture.dir.path().to_str().expect("plain"), "-B"], ["--build", ".", "--clean-first"]]
        {
            let mut command = Command::new("cmake");
            command.args(words);
            if words[0] == "-S" {
                command.arg(&build).arg(&prefix);
            } else {
                command.current_dir(&build);
            }
            let output = command.output().expect("it is there");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    fs::write(fixture.path("prefix/include/rtscope/mine.h"), "").expect("a file of the user's");
    let uninstall = Command::new(root().join("dist/uninstall.sh")).arg(fixture.path("prefix")).output();
    let uninstall = uninstall.expect("it can be run");
    assert!(uninstall.status.success(), "{uninstall:?}");
    let left = Command::new("find").arg(fixture.path("prefix")).args(["-type", "f"]).output();
    let left = String::from_utf8(left.expect("it is there").stdout).expect("text");
    assert_eq!(left.trim_end(), fixture.path("prefix/include/rtscope/mine.h").display().to_string());
}
