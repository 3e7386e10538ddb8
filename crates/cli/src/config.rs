//! `tenure config`: what is set, from where, and what is wrong.

use crate::args::ConfigAction;
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json, say_lines};
use std::process::ExitCode;
use tenure::settings::{Origin, Resolved, Source, default_toml};

pub(crate) fn config(action: ConfigAction) -> Result<ExitCode, Failure> {
    match action {
        ConfigAction::Check { settings } => {
            let resolved = settings.load()?;
            warn(&resolved);
            say!("the settings are valid");
            say!("a crashed leader is replaced within {} ms", resolved.settings.failover_bound().as_millis());
        }
        ConfigAction::Show { resolved: all, json, settings } => {
            let resolved = settings.load()?;
            warn(&resolved);
            show(&resolved, all, json)?;
        }
        ConfigAction::Default => say_lines(default_toml().trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

fn warn(resolved: &Resolved) {
    for warning in &resolved.warnings {
        complain!("tenure: warning: {warning}");
    }
}

fn show(resolved: &Resolved, all: bool, json: bool) -> Result<(), Failure> {
    let shown = resolved.sources.iter().filter(|origin| all || origin.source != Source::Default);
    if json {
        let entry = |origin: &Origin| {
            let value =
                serde_json::json!({"value": origin.value.to_json(), "from": origin.source.to_string()});
            (origin.field.name.to_owned(), value)
        };
        let object: serde_json::Map<_, _> = shown.map(entry).collect();
        say_json(&serde_json::to_string_pretty(&object).map_err(Failure::other)?);
        return Ok(());
    }
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for origin in shown {
        table.row([origin.field.name.to_owned(), origin.value.to_string(), origin.source.to_string()]);
    }
    if table.is_empty() {
        say!("nothing is set; use `tenure config show --resolved` to see the defaults");
    } else {
        table.say();
    }
    Ok(())
}
