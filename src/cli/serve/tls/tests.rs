//! Tests of access to the gRPC listener, by all flags together.

use clap::Parser;
use rstest::rstest;

use super::*;
use service::listen::AllowedName;

const ALL: [&str; 6] = ["--tls-cert-file", "tls.crt", "--tls-key-file", "tls.key", "--tls-client-ca-file", "ca.crt"];

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    tls: TlsArgs,
}

fn tls_of(listen: &str, flags: &[&str]) -> (Result<Option<TlsFiles>, String>, Vec<String>) {
    let flags = Flags::try_parse_from(["serve"].iter().chain(flags)).unwrap();
    let mut warnings = Vec::new();
    let files = tls(&flags.tls, &listen.parse().unwrap(), &mut warnings).map_err(|error| error.to_string());
    (files, warnings)
}

#[rstest]
fn on_loopback_nothing_is_needed_and_nothing_warned_of(
    #[values("127.0.0.1:8086", "[::1]:8086", "127.1.2.3:0", "[::ffff:127.0.0.1]:1")] listen: &str,
    #[values(&[], &ALL[..4], &ALL)] flags: &[&str],
) {
    let (files, warnings) = tls_of(listen, flags);
    assert_eq!(files.unwrap().is_some(), !flags.is_empty());
    assert_eq!(warnings, Vec::<String>::new());
}

#[rstest]
#[case::nothing(&[], "without TLS")]
#[case::no_client_certificates(&ALL[..4], "without client certificates")]
fn beyond_loopback_less_than_mutual_tls_needs_the_operators_word(
    #[values("0.0.0.0:8086", "[::]:8086", "10.0.0.1:8086")] listen: &str,
    #[case] flags: &[&str],
    #[case] lack: &str,
) {
    let (refused, _) = tls_of(listen, flags);
    let message = refused.unwrap_err();
    for part in [listen, lack, "--listen-allow-insecure", "CAPI_AUTOSCALER_LISTEN"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let (files, warnings) = tls_of(listen, &[flags, &["--listen-allow-insecure"]].concat());
    assert_eq!(files.unwrap().is_some(), !flags.is_empty());
    assert!(warnings.len() == 1 && warnings[0].contains(lack), "{warnings:?}");
}

#[test]
fn mutual_tls_may_be_reached_by_others() {
    let (files, warnings) = tls_of(
        "0.0.0.0:8086",
        &[&ALL[..], &["--tls-allowed-client-names", "CA.kube-system spiffe://prod/ca"]].concat(),
    );
    let names = vec![AllowedName::Dns("ca.kube-system".to_owned()), AllowedName::Uri("spiffe://prod/ca".to_owned())];
    let allowed = AllowedClients { names, ..AllowedClients::default() };
    let clients = ClientFiles::Authority { files: vec!["ca.crt".into()], allowed };
    let expected = TlsFiles { certificate: "tls.crt".into(), key: "tls.key".into(), clients };
    assert_eq!((files.unwrap(), warnings), (Some(expected), Vec::new()));
}

/// The authority may also issue certificates to other clients than Cluster Autoscaler.
#[rstest]
#[case::any_name(&ALL, true)]
#[case::any_name_but_one_that_may_only_read(&[&ALL[..], &["--tls-read-only-client-names", "dashboard"]].concat(), true)]
#[case::a_name(&[&ALL[..], &["--tls-allowed-client-names", "ca"]].concat(), false)]
fn clients_of_any_name_are_warned_of_where_others_reach_the_listener(#[case] flags: &[&str], #[case] warns: bool) {
    for (listen, is_reached) in [("0.0.0.0:8086", true), ("127.0.0.1:8086", false)] {
        let (files, warnings) = tls_of(listen, flags);
        assert!(files.unwrap().is_some());
        assert_eq!(warnings.len(), usize::from(warns && is_reached), "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains("--tls-allowed-client-names")), "{warnings:?}");
    }
}

#[rstest]
#[case::certificate_alone(&["--tls-cert-file", "c"], "--tls-cert-file needs --tls-key-file (or CAPI_AUTOSCALER_TLS_KEY_FILE)")]
#[case::key_alone(&["--tls-key-file", "k"], "--tls-key-file needs --tls-cert-file")]
#[case::authority_alone(&["--tls-client-ca-file", "c"], "--tls-client-ca-file needs --tls-cert-file")]
#[case::names_without_authority(
    &["--tls-cert-file", "c", "--tls-key-file", "k", "--tls-allowed-client-names", "a"],
    "--tls-allowed-client-names needs --tls-client-ca-file"
)]
#[case::no_name(&[&ALL[..], &["--tls-allowed-client-names", "*.example.com"]].concat(), "--tls-allowed-client-names (or CAPI")]
fn an_incomplete_or_invalid_set_of_tls_flags_is_refused_by_the_name_of_the_flag(
    #[case] flags: &[&str],
    #[case] expected: &str,
) {
    let message = tls_of("127.0.0.1:0", flags).0.unwrap_err();
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn an_empty_value_is_none() {
    let (files, _) = tls_of("127.0.0.1:0", &["--tls-cert-file", "", "--tls-key-file", " ", "--tls-client-ca-file", ""]);
    assert_eq!(files, Ok(None));
}

#[rstest]
#[case::default_on_loopback("127.0.0.1:0", Reflection::Auto, true)]
#[case::default_on_a_socket("unix:///run/a.sock", Reflection::Auto, true)]
#[case::default_beyond("0.0.0.0:0", Reflection::Auto, false)]
#[case::asked_for("0.0.0.0:0", Reflection::On, true)]
#[case::unwanted("127.0.0.1:0", Reflection::Off, false)]
fn reflection_is_for_loopback_unless_asked_for(#[case] listen: &str, #[case] when: Reflection, #[case] on: bool) {
    assert_eq!(when.is_on(&listen.parse().unwrap()), on);
}
