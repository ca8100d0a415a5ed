use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn entry(name: &str, ticket: &str, phase: Phase, soft: bool) -> Entry {
    let uid = Uid::from(format!("uid-of-{name}"));
    Entry { name: name.into(), uid, ticket: ticket.into(), phase, soft, counted: false, pending: false }
}

fn log(entries: impl IntoIterator<Item = Entry>) -> DeletionLog {
    DeletionLog::default().with(entries)
}

#[test]
fn a_log_is_compact_and_says_what_it_says_once() {
    let log = log([
        entry("b", "t1", Phase::Lowered, false),
        entry("a", "t1", Phase::Lowered, false),
        entry("c", "t2", Phase::Wanted, true),
    ]);
    assert_eq!(
        log.print().unwrap().unwrap(),
        r#"[{"ticket":"t1","phase":"lowered","machines":{"a":"uid-of-a","b":"uid-of-b"}},{"ticket":"t2","phase":"wanted","soft":true,"machines":{"c":"uid-of-c"}}]"#
    );
}

#[test]
fn an_empty_log_is_no_annotation() {
    assert_eq!(log([]).print(), Ok(None));
    assert_eq!(DeletionLog::parse(None), Ok(log([])));
    assert_eq!(DeletionLog::parse(Some("[]")), Ok(log([])));
}

#[rstest]
#[case::empty("")]
#[case::no_json("a")]
#[case::no_list("{}")]
#[case::no_ticket(r#"[{"phase":"wanted","machines":{}}]"#)]
#[case::an_unknown_phase(r#"[{"ticket":"t","phase":"marked","machines":{}}]"#)]
#[case::a_field_of_a_later_version(r#"[{"ticket":"t","phase":"wanted","set":"s","machines":{}}]"#)]
#[case::another_path(r#"[{"ticket":"t","phase":"wanted","machines":{"../../team-b/machines/a":"1"}}]"#)]
#[case::a_query(r#"[{"ticket":"t","phase":"wanted","machines":{"a?dryRun=All":"1"}}]"#)]
#[case::no_name(r#"[{"ticket":"t","phase":"wanted","machines":{"":"1"}}]"#)]
#[case::a_name_of_dots(r#"[{"ticket":"t","phase":"wanted","machines":{"..":"1"}}]"#)]
#[case::no_uid(r#"[{"ticket":"t","phase":"wanted","machines":{"a":""}}]"#)]
#[case::a_machine_twice(
    r#"[{"ticket":"t","phase":"wanted","machines":{"a":"1"}},{"ticket":"u","phase":"wanted","machines":{"b":"1"}}]"#
)]
fn a_text_that_is_no_log_is_an_error_that_names_the_annotation(#[case] text: &str) {
    let error = DeletionLog::parse(Some(text)).unwrap_err();
    assert!(error.to_string().contains("capi-autoscaler-provider.io/deleting"), "{error}");
}

/// Returns the text of a log of this many Machines with UUIDs.
fn text_of(count: usize) -> String {
    let machines = (0..count).map(|n| format!(r#""m{n}":"9b4bf4b1-715d-4c5b-a5ff-{n:012x}""#));
    let machines = machines.collect::<Vec<_>>().join(",");
    format!(r#"[{{"ticket":"t","phase":"wanted","machines":{{{machines}}}}}]"#)
}

fn padded(text: String, bytes: usize) -> String {
    let spaces = bytes - text.len();
    text + &" ".repeat(spaces)
}

fn of_one(name: &str, uid: &str, ticket: &str) -> String {
    serde_json::json!([{"ticket": ticket, "phase": "wanted", "machines": {name: uid}}]).to_string()
}

#[rstest]
#[case::of_machines(text_of(1_000), text_of(1_001), "1001")]
#[case::of_bytes(padded(text_of(9), 160 * 1024), padded(text_of(9), 160 * 1024 + 1), "163841")]
#[case::of_a_name(of_one(&"a".repeat(253), "1", "t"), of_one(&"a".repeat(254), "1", "t"), "(cut)")]
#[case::of_a_uid(of_one("a", &"1".repeat(128), "t"), of_one("a", &"1".repeat(129), "t"), "129")]
#[case::of_a_ticket(of_one("a", "1", &"t".repeat(128)), of_one("a", "1", &"t".repeat(129)), "129")]
fn a_text_is_read_up_to_each_bound_and_refused_beyond(
    #[case] at_bound: String,
    #[case] beyond: String,
    #[case] says: &str,
) {
    assert!(!DeletionLog::parse(Some(&at_bound)).unwrap().is_empty());
    let error = DeletionLog::parse(Some(&beyond)).unwrap_err().to_string();
    assert!(error.contains(says) && error.contains("capi-autoscaler-provider.io/deleting"), "{error}");
    assert!(error.contains("remove the annotation"), "it says what to do: {error}");
}

/// This was found on the sandbox: short names, and as many of them as an annotation holds.
#[test]
fn an_annotation_full_of_short_names_is_refused_with_its_size() {
    let machines: Vec<_> = (0..20_000).map(|n| format!(r#""{n}":"0{n}""#)).collect();
    let text = format!(r#"[{{"ticket":"t","phase":"lowered","machines":{{{}}}}}]"#, machines.join(","));
    let error = DeletionLog::parse(Some(&text)).unwrap_err().to_string();
    assert!(error.contains(&text.len().to_string()), "{error}");
}

#[rstest]
#[case::a_field(format!(r#"[{{"ticket":"t","phase":"wanted","machines":{{}},"{}":1}}]"#, "x".repeat(100_000)))]
#[case::a_phase(format!(r#"[{{"ticket":"t","phase":"{}","machines":{{}}}}]"#, "x".repeat(100_000)))]
#[case::a_uid(of_one("a", &"x".repeat(100_000), "t"))]
#[case::a_ticket(of_one("a", "1", &"x".repeat(100_000)))]
#[case::brackets("[".repeat(100_000))]
fn a_parse_error_of_a_long_deletion_log_is_short(#[case] text: String) {
    let error = DeletionLog::parse(Some(&text)).unwrap_err().to_string();
    assert!(error.len() < 1_000, "{} bytes", error.len());
}

#[test]
fn two_machines_of_one_name_stand_apart() {
    let mut second = entry("a", "t", Phase::Wanted, false);
    second.uid = "another".into();
    let log = log([entry("a", "t", Phase::Wanted, false), second]);
    let text = log.print().unwrap().unwrap();
    assert_eq!(DeletionLog::parse(Some(&text)), Ok(log));
}

#[rstest]
#[case::as_many_as_fit(1_000, 40, true)]
#[case::one_more(1_001, 40, false)]
#[case::names_as_long_as_they_may_be(1_000, 253, false)]
fn a_log_that_does_not_fit_an_annotation_is_refused(#[case] count: usize, #[case] length: usize, #[case] fits: bool) {
    let name = |n: usize| format!("{n:0>length$}");
    let log = log((0..count).map(|n| Entry {
        uid: format!("9b4bf4b1-715d-4c5b-a5ff-{n:012x}").into(),
        ..entry(&name(n), "t", Phase::Wanted, false)
    }));
    let printed = log.print();
    assert_eq!(printed.is_ok(), fits, "{:?}", printed.as_ref().err());
    assert_eq!(log.check(0), printed.map(|_| ()));
}

#[test]
fn a_mark_leads_back_to_its_ticket_and_no_other_mark_does() {
    let ticket = Ticket::new(Timestamp::UNIX_EPOCH, 7);
    assert_eq!(ticket.to_string(), "1970-01-01T00:00:00Z-0000000000000007");
    assert_eq!(Ticket::of_mark(&ticket.mark()), Some(ticket));
    assert_eq!(Ticket::of_mark(""), None);
    assert_eq!(Ticket::of_mark("by hand"), None);
}

#[rstest]
#[case::one_of_ours("2026-01-31T12:00:05Z-00000000000000ff", Some("2026-01-31T12:00:05Z"))]
#[case::no_time("soon-00000000000000ff", None)]
#[case::no_chance("now", None)]
#[case::empty("", None)]
fn a_ticket_says_when_it_was_made(#[case] ticket: &str, #[case] time: Option<&str>) {
    assert_eq!(Ticket::from(ticket).time(), time.map(|time| time.parse().unwrap()));
}

proptest! {
    #[test]
    fn a_printed_deletion_log_parses_to_the_same_log(machines in prop::collection::btree_map(
        "[a-z]{1,3}", ("t[0-3]", any::<bool>(), any::<bool>(), any::<bool>()), 0..20,
    )) {
        let entries = machines.iter().map(|(name, (ticket, is_lowered, soft, counted))| {
            let phase = if *is_lowered { Phase::Lowered } else { Phase::Wanted };
            Entry { counted: *counted, ..entry(name, ticket, phase, *soft) }
        });
        let log = log(entries);
        let text = log.print().unwrap();
        let again = DeletionLog::parse(text.as_deref()).unwrap();
        prop_assert_eq!(log.check(0), Ok(()));
        prop_assert_eq!(again.print().unwrap(), text, "and the text is stable");
        prop_assert_eq!(again.entries().len(), log.entries().len());
        prop_assert!(log.entries().iter().all(|entry| again.get(&entry.uid) == Some(entry)));
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = DeletionLog::parse(Some(&text));
    }
}
