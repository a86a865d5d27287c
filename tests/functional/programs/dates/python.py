from calendar import isleap
from datetime import date, timedelta

day = date(2024, 2, 29)
print((day - date(2000, 1, 1)).days)
print(day.strftime("%A"))
print(day + timedelta(days=100))
print(*(f"{year} {'yes' if isleap(year) else 'no'}" for year in (1900, 2000, 2023, 2024)))
