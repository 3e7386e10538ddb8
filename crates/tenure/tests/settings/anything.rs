//! Whatever comes in, what comes out is settings or an error, and valid settings stay valid.

use super::{loader, toml};
use proptest::prelude::*;
use tenure::settings::{FIELDS, Resolved, SettingsError};

fn lines() -> impl Strategy<Value = String> {
    let name =
        prop::sample::select(FIELDS.iter().map(|f| f.name).chain(["globalCoordinator"]).collect::<Vec<_>>());
    let value = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (0..5000i64).prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|x| format!("{x:?}")),
        any::<String>().prop_map(|s| format!("{s:?}")),
        Just("true".to_owned()),
        Just("{ leaseTimeout = 1 }".to_owned()),
        Just("[[]]".to_owned()),
        ".*",
    ];
    prop::collection::vec((name, value).prop_map(|(name, value)| format!("{name} = {value}\n")), 0..6)
        .prop_map(|lines| lines.concat())
}

/// One line for each problem, whatever was in the values.
fn check_outcome(result: Result<Resolved, SettingsError>) -> Result<(), TestCaseError> {
    match result {
        Ok(resolved) => prop_assert!(resolved.settings.check().is_ok()),
        Err(error) => {
            prop_assert!(!error.problems.is_empty());
            let more = usize::from(error.omitted > 0);
            prop_assert_eq!(error.to_string().lines().count(), error.problems.len() + more);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_as_file_gives_settings_or_an_error(text in any::<String>(), name in "[a-z]\\.(toml|json|txt)") {
        check_outcome(loader().file_text(name, text).load())?;
    }

    #[test]
    fn any_lines_as_file_give_settings_or_an_error(text in lines()) {
        check_outcome(toml(&text))?;
    }

    #[test]
    fn any_flag_and_variable_give_settings_or_an_error(
        index in 0..FIELDS.len(),
        value in prop_oneof![any::<String>(), any::<i64>().prop_map(|n| n.to_string())],
    ) {
        check_outcome(loader().flag(FIELDS[index].name, value.as_str()).load())?;
        check_outcome(loader().env([(FIELDS[index].env, value.as_str())]).load())?;
        check_outcome(loader().flag(&value, "x").load())?;
    }
}
