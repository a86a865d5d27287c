//! The handle of a run. It is unguessable, and no other kind of handle parses as one.

crate::handle::handle! {
    /// `run_` and 32 hexadecimal digits.
    RunId, "run_"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_lead_back_to_themselves() {
        let (first, second) = (RunId::random().unwrap(), RunId::random().unwrap());
        assert_ne!(first, second);
        assert_eq!(RunId::parse(first.as_str()), Some(first));
    }

    #[test]
    fn nothing_else_is_an_id() {
        let good = RunId::random().unwrap();
        let bad = [
            String::new(),
            "run_".to_owned(),
            good.as_str().to_uppercase(),
            format!("{good}0"),
            format!(" {good}"),
            good.as_str().replace("run_", "job_"),
            format!("run_{}", "g".repeat(32)),
            format!("run_{}", "é".repeat(16)),
        ];
        for text in bad {
            assert_eq!(RunId::parse(&text), None, "{text:?}");
        }
    }
}
