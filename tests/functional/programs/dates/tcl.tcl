set day [clock scan 2024-02-29 -format %Y-%m-%d -timezone :UTC]
puts [expr {($day - [clock scan 2000-01-01 -format %Y-%m-%d -timezone :UTC]) / 86400}]
puts [clock format $day -format %A -timezone :UTC]
puts [clock format [clock add $day 100 days -timezone :UTC] -format %Y-%m-%d -timezone :UTC]
set words {}
foreach year {1900 2000 2023 2024} {
  lappend words $year [expr {$year % 4 == 0 && $year % 100 != 0 || $year % 400 == 0 ? "yes" : "no"}]
}
puts $words
