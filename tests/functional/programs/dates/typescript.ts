const enum Length { Day = 86_400_000 }
const names = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'] as const
const day: Date = new Date('2024-02-29T00:00:00Z')
const isLeap = (year: number): boolean => (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0
console.log((day.getTime() - Date.UTC(2000, 0, 1)) / Length.Day)
console.log(names[day.getUTCDay()])
console.log(new Date(day.getTime() + 100 * Length.Day).toISOString().slice(0, 10))
console.log([1900, 2000, 2023, 2024].map((year) => `${year} ${isLeap(year) ? 'yes' : 'no'}`).join(' '))
