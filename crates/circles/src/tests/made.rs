//! Checks the search for circles on small crates that are made here.

use std::fs;

use crate::{source::read_crate, uses::circles};

/// Returns the circles of a crate of these files, without the places of uses.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let circles = circles(&read_crate(&dir.path().join("lib.rs")).unwrap());
    let without_places = circles.iter().map(|circle| {
        let mut lines: Vec<_> = circle.lines().map(|line| line.split(" (").next().unwrap().trim()).collect();
        lines.dedup();
        lines.join(", ")
    });
    without_places.collect()
}

#[test]
fn a_circle_of_three_is_found_and_named() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use super::{b::B, x::{c}};"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "pub struct C; fn f() { super::a::g() }"),
    ];
    assert_eq!(circles_of(&files), ["in crate::, a uses b, b uses c, c uses a"]);
}

#[test]
fn each_kind_of_use_is_followed() {
    let uses = [
        "use super::a::A;",
        "use super::{a};",
        "use crate::{x::Y, a::{A as C}};",
        "use super::a::*;",
        "use super::A;",
        "use crate::a; fn f() { a::g() }",
        "fn f() -> super::a::A { todo() }",
        "fn f() { let x = crate::a::A { y: 1 }; }",
        "fn f() { println!(\"{}\", super::a::A) }",
        "impl<T: super::a::A<T>> T { fn f() {} }",
        "mod inner { use super::super::a::A; }",
        "#[cfg(unix)] use super::a::A;",
        "#[cfg(test)] mod tests { } use super::a::A;",
        "#[cfg(test)] const X: u8 = { 1 }; use super::a::A;",
        "#[cfg(test)] mod tests; use super::a::A;",
    ];
    for text in uses {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "use super::b::B; pub struct A;"),
            ("b.rs", text),
            ("b/tests.rs", ""),
        ];
        assert_eq!(circles_of(&files), ["in crate::, a uses b, b uses a"], "{text}");
    }
}

#[test]
fn tests_comments_strings_other_crates_and_parents_make_no_circle() {
    let harmless = [
        "#[cfg(test)] mod tests { use super::super::a::A; }",
        "#[cfg(test)] use super::a::A;",
        "#[cfg(any(test, feature = \"x\"))] fn f() { super::a::g() }",
        "struct S { #[cfg(test)] a: super::a::A, b: u8 }",
        "// use super::a::A;\n/// [`super::a::A`]\nfn f() {}",
        "const X: &str = \"use super::a::A;\";",
        "use ::a::A;",
        "use other::a::A;",
        "use super::Parent;",
        "fn f(x: X) { x.a.g() }",
    ];
    for text in harmless {
        let files = [
            ("lib.rs", "mod a; mod b; pub struct Parent; use b::B;"),
            ("a.rs", "use super::b::B; pub struct A;"),
            ("b.rs", text),
        ];
        assert_eq!(circles_of(&files), [""; 0], "{text}");
    }
}

#[test]
fn a_circle_below_a_module_and_one_between_modules_are_found() {
    let below = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod x; mod y; use x::X;"),
        ("a/x.rs", "use super::y::Y; use super::Z;"),
        ("a/y.rs", "use crate::a::x::X;"),
    ];
    assert_eq!(circles_of(&below), ["in crate::a, x uses y, y uses x"]);
    let between = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod x; mod y;"),
        ("a/x.rs", "use crate::b::B;"),
        ("a/y.rs", ""),
        ("b.rs", "use super::a::y::Y;"),
    ];
    assert_eq!(circles_of(&between), ["in crate::, a uses b, b uses a"]);
}

#[test]
fn an_import_through_the_parent_leads_to_the_file_that_declares() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; use a::A; use c::*;"),
        ("a.rs", "use super::b::B;"),
        ("b.rs", "use super::{A as Other, C};"),
        ("c.rs", "use super::b::B; pub struct C;"),
    ];
    assert_eq!(circles_of(&files), ["in crate::, a uses b, b uses a", "in crate::, c uses b, b uses c"]);
}

#[test]
fn files_of_a_module_of_tests_are_held_to_each_other_and_those_elsewhere_are_found() {
    let tests = [
        ("lib.rs", "mod a; #[cfg(test)] mod tests;"),
        ("a.rs", "#[cfg(test)] #[allow(dead_code)] pub(crate) mod tests;"),
        ("a/tests.rs", "use crate::tests::x::X;"),
        ("tests/mod.rs", "mod x; mod y;"),
        ("tests/x.rs", "use super::y::Y; use crate::a::tests::A; pub struct X;"),
        ("tests/y.rs", "use crate::tests::x::X;"),
    ];
    assert_eq!(circles_of(&tests), ["in crate::tests, x uses y, y uses x"]);
    let elsewhere = [
        ("lib.rs", "#[path = \"other/b.rs\"] #[allow(dead_code)] mod a; mod c;"),
        ("other/b.rs", "mod d; use super::c::C; pub struct A;"),
        ("other/d.rs", ""),
        ("c.rs", "use super::a::A;"),
    ];
    assert_eq!(circles_of(&elsewhere), ["in crate::, a uses c, c uses a"]);
}
