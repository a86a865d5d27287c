function leap(year) { return year % 4 == 0 && year % 100 != 0 || year % 400 == 0 ? "yes" : "no" }

BEGIN {
  day = mktime("2024 02 29 00 00 00", 1)
  print (day - mktime("2000 01 01 00 00 00", 1)) / 86400
  print strftime("%A", day, 1)
  print strftime("%Y-%m-%d", day + 100 * 86400, 1)
  print "1900 " leap(1900) " 2000 " leap(2000) " 2023 " leap(2023) " 2024 " leap(2024)
}
