//! Compares reference pages and examples with the code: annotations and their bounds, texts of a lack of capacity, price
//! files, and the rules and lines of `watch`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use app::prices::PriceFile;
use arcstr::ArcStr;
use change_stream::notify::{SinkKind, UrlSource, parse_rules};
use rules::{
    Problem, TERMINAL, capacity,
    capi::{
        CAPACITY_ERROR_GRACE, CAPACITY_PREFIX, CLIENT_NOT_BEFORE, DEFER_UPGRADE, HOLD_UPGRADE_SEQUENCE, Keys,
        OWN_CAPACITY_PREFIX, PAUSED, REPLICAS_MANAGED_BY, SCALE_DOWN_WHILE_ROLLING_OUT,
    },
    failure::{CAUSES, Cause, Form},
    options,
    price::{Price, Rates, Tariff},
};
use serde_json::Value;

use super::{first_cells, read, root};

/// Returns the known annotations of a rule, without their prefix, from its message about an unknown one.
fn known(problems: &[Problem]) -> Vec<String> {
    let [problem] = problems else { panic!("one problem was expected: {problems:?}") };
    let (_, list) = problem.message.split_once("known are ").unwrap();
    let (list, _) = list.split_once(';').unwrap();
    list.split(", ").map(str::to_owned).collect()
}

fn annotations_that_are_read() -> BTreeSet<String> {
    // Each key by name, so that a new one stops the build here until it is documented.
    let Keys {
        group: _,
        size_prefix: _, // of the two sizes
        min_size,
        max_size,
        options_prefix,
        delete_machine,
        machine,
        cluster_namespace,
        cluster_name: _, // a label
        owner_kind,
        owner_name,
        revision,
    } = Keys::default();
    let one = |key: String| BTreeMap::from([(ArcStr::from(key), ArcStr::from("x"))]);
    let (_, of_options) = options::overrides(&Keys::default(), &one(format!("{options_prefix}unknown")));
    let (_, of_capacity) = capacity::of_annotations(&one(format!("{CAPACITY_PREFIX}unknown")));
    let (_, of_own) = capacity::of_own_annotations(&one(format!("{OWN_CAPACITY_PREFIX}unknown")));
    let own = known(&of_own).into_iter().map(|name| format!("{OWN_CAPACITY_PREFIX}{name}"));
    let options = known(&of_options).into_iter().map(|name| format!("{options_prefix}{name}"));
    let capacity = known(&of_capacity).into_iter().map(|name| format!("{CAPACITY_PREFIX}{name}"));
    let fixed = [min_size, max_size, delete_machine, machine, cluster_namespace, owner_kind, owner_name, revision]
        .into_iter()
        .chain(
            [
                PAUSED,
                REPLICAS_MANAGED_BY,
                CAPACITY_ERROR_GRACE,
                SCALE_DOWN_WHILE_ROLLING_OUT,
                CLIENT_NOT_BEFORE,
                DEFER_UPGRADE,
                HOLD_UPGRADE_SEQUENCE,
            ]
            .map(str::to_owned),
        );
    fixed.chain(options).chain(capacity).chain(own).collect()
}

#[test]
fn every_annotation_is_documented_and_every_documented_annotation_is_read() {
    assert_eq!(first_cells(&read("docs/reference/annotations.md")), annotations_that_are_read());
}

/// Returns the annotations that each row of the table of bounds names, where `…` ends a prefix.
fn bounds() -> Vec<Vec<String>> {
    let document = read("SECURITY.md");
    let (_, section) = document.split_once("\n## Limits on object contents\n").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")).skip(1);
    let code = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    rows.map(|row| code(row.split(" | ").next().unwrap())).collect()
}

#[test]
fn every_annotation_that_is_read_has_a_bound_in_one_row_of_the_table() {
    let named: Vec<_> = bounds().into_iter().flatten().collect();
    let annotations = annotations_that_are_read();
    let is_of = |key: &str, name: &str| name.strip_suffix('…').map_or(key == name, |prefix| key.starts_with(prefix));
    for key in &annotations {
        let rows = named.iter().filter(|name| is_of(key, name)).count();
        assert_eq!(rows, 1, "{key} is named by {rows} rows of SECURITY.md");
    }
    for name in named {
        assert!(annotations.iter().any(|key| is_of(key, &name)), "{name} is read nowhere");
    }
}

#[test]
fn every_text_of_a_lack_of_capacity_is_documented_with_its_source_by_whether_it_heals() {
    let document = read("docs/reference/failures.md");
    let (heals, lasts) = document.split_once("**A lasting lack**").unwrap();
    for (section, expected) in [(heals, true), (lasts, false)] {
        let documented: BTreeSet<_> =
            section.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
        let row = |cause: &Cause| {
            let form = match cause.form {
                Form::Code => "exact",
                Form::Phrase => "any case",
            };
            format!("| `{}` | {} | {form} | `{}` |", cause.text, cause.provider, cause.source)
        };
        let known: BTreeSet<_> = CAUSES.iter().filter(|cause| cause.heals == expected).map(row).collect();
        assert_eq!(documented, known);
    }
}

#[test]
fn every_reason_after_which_a_machine_never_comes_is_documented_with_its_source() {
    let document = read("docs/reference/failures.md");
    let (_, table) = document.split_once("| provider | text | source |\n|---|---|---|\n").unwrap();
    let documented: BTreeSet<_> = table.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
    let row = |it: &rules::Terminal| format!("| {} | `{}` | `{}` |", it.provider, it.text, it.source);
    assert_eq!(documented, TERMINAL.iter().map(row).collect());
}

#[test]
fn the_price_file_and_the_one_in_its_document_are_read() {
    let (_, prices) = PriceFile::open(&root().join("examples/prices.yaml")).unwrap();
    let price = |number: f64| Price::try_from(number).unwrap();
    assert_eq!(prices.instance_types.get("g5.xlarge"), Some(&price(1.006)));
    assert_eq!(prices.resources.map(|rates| rates.memory), Some(price(0.00375)));
    let [spot, arm] = prices.selectors.as_slice() else { panic!("{prices:?}") };
    assert_eq!(spot.tariff, Tariff::Whole(price(0.074)));
    assert_eq!(arm.tariff, Tariff::Resources(Rates { cpu: price(0.0272), memory: price(0.003), gpu: None }));

    let document = read("docs/how-to/prices.md");
    let (_, rest) = document.split_once("```yaml\n").unwrap();
    let (form, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prices.yaml");
    fs::write(&file, form).unwrap();
    let (_, documented) = PriceFile::open(&file).unwrap();
    assert_eq!(documented.selectors, prices.selectors);
    assert!(documented.instance_types.iter().all(|known| prices.instance_types.get(known.0) == Some(known.1)));
}

#[test]
fn the_rules_of_watch_are_rules() {
    let rules = parse_rules(&read("examples/watch/rules.yaml")).unwrap();
    assert_eq!(rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["machines-going", "sizes"]);
    let slack = UrlSource::File("/etc/capi-autoscaler-provider/hooks/slack".into());
    assert_eq!((rules[0].to.kind, &rules[0].to.url), (SinkKind::Slack, &slack));
    assert_eq!(rules[1].to.kind, SinkKind::Webhook);
}

#[test]
fn every_field_of_a_rule_is_documented() {
    let documented = first_cells(&read("docs/reference/watch.md"));
    let error = parse_rules("rules: [{unknown: 1}]").unwrap_err();
    let (_, known) = error.split_once("expected one of ").unwrap();
    let fields: Vec<_> = known.split('`').skip(1).step_by(2).filter(|field| *field != "to").collect();
    assert!(fields.len() > 5, "{error}");
    for field in fields {
        assert!(documented.contains(field), "{field} is not documented");
    }
}

#[test]
fn the_documented_line_of_watch_has_the_documented_fields() {
    let document = read("docs/reference/watch.md");
    let line = document.lines().find(|line| line.starts_with("{\"schemaVersion\":1,\"time\"")).unwrap();
    let line: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
    let (_, table) = document.split_once("## JSON lines").unwrap();
    for field in line.keys() {
        assert!(table.contains(&format!("`{field}`")), "{field} is not documented");
    }
}
